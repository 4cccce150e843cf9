#include "ops/convolution/params.h"

#include <array>

#include "ops/common/checks.h"

namespace sluice {
namespace {

// The weight of each group's input channels, and its packed form if given.
DenseTensors dense_tensors(const Convolution& c) {
  const TensorView weight(c.weight);
  const int output = c.is_transposed ? 1 : 0, input = 1 - output;
  const bool is_grouped = c.groups != 1;
  if (weight.rank != 3 || (is_grouped && (c.is_transposed || weight.sizes[input] == 1))) return {};
  return {.weight = operand_of<3>(weight, std::array{weight.strides[output], weight.strides[input], weight.strides[2]}),
          .input_channels = weight.sizes[input],
          .groups = c.groups,
          .packed = c.packed.has_value() ? TensorView(*c.packed).data : nullptr};
}

}  // namespace

std::optional<int64_t> channel_stride(const Convolution& c) {
  const TensorView weight(c.weight);
  if (!c.is_transposed || weight.sizes[1] == 1) return weight.strides[0];
  const bool merges = weight.sizes[0] == 1 || weight.strides[0] == weight.sizes[1] * weight.strides[1];
  return merges ? std::optional(weight.strides[1]) : std::nullopt;
}

Conv1dParams make_params(const Convolution& c, const TensorView& input, const TensorView& result) {
  const TensorView weight(c.weight);
  const std::vector<int64_t> sizes = sizes_of(input);
  Conv1dParams params{{
      .input = operand_of<3>(input),
      .output = operand_of<3>(result),
      .weight = operand_of<2>(weight, std::array{channel_stride(c).value_or(0), weight.strides[weight.rank - 1]}),
      .bias = operand_of<1>(c.bias),
      .history = operand_of<3>(c.history),
      .batch = c.sizes[0],
      .channels = c.sizes[1],
      .length = sizes[2],
      .output_length = c.sizes[2],
      .multiplier = c.groups == sizes[1] ? static_cast<int>(c.sizes[1] / sizes[1]) : 1,
      .taps = static_cast<int>(weight.sizes[weight.rank - 1]),
      .stride = c.stride,
      .padding = c.padding,
      .dilation = c.dilation,
  }};
  params.dense = dense_tensors(c);
  params.dense.allows_tf32 = c.allows_tf32;
  c.pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return c.pre.strides(k, sizes); });
  c.post.fill(params.post, params.post_operands, [&](std::size_t k) { return c.post.strides(k, c.sizes); });
  return params;
}

Conv1dProblem make_problem(const Convolution& c, const Conv1dParams& params) {
  Conv1dProblem problem = problem_of(params);  // as if it were depthwise
  const bool is_dense = params.dense.input_channels > 0;
  problem.input_channels = is_dense ? c.groups * params.dense.input_channels : c.input.size(1);
  problem.groups = c.groups;
  problem.is_chained = problem.is_chained || c.in_passes;
  problem.may_split = !problem.interleaves && c.groups == 1 && !c.unsplit;
  return problem;
}

bool is_depthwise(const Convolution& c) {
  return is_depthwise({.input_channels = c.input.size(1), .channels = c.sizes[1], .groups = c.groups}, c.schedule);
}

Conv1dParams depthwise_params(const Convolution& c, const TensorView& result) {
  return make_params(c, TensorView(c.input), result);
}

bool is_chained(const Conv1dParams& params, const Conv1dPlan& plan) {
  return !params.post.empty() || (!params.pre.empty() && !plan.dense.applies_pre_first);
}

void check_forced(const Convolution& c, const char* reason_for_aten) {
  check(c.schedule.automatic, c.op, ": schedule must be auto here, because ", reason_for_aten, "; got ",
        name_of(c.schedule.schedule));
}

}  // namespace sluice
