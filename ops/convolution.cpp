#include "ops/convolution.h"

#include <array>

#include "kernels/conv1d/conv1d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/link.h"
#include "ops/common/plan_text.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#include "kernels/conv1d/link.h"
#else
#include <torch/csrc/stable/ops.h>

#include "kernels/conv1d/depthwise/depthwise_cpu.h"
#include "kernels/filter2d/filter2d_cpu.h"
#endif

namespace sluice {
namespace {

constexpr Question kCompute{};

// A weight of a group's input channels, and packed where it comes so.
DenseTensors dense_tensors(const Convolution& c) {
  const TensorView weight(c.weight);
  if (weight.rank != 3 || (c.groups != 1 && weight.sizes[1] == 1)) return {};
  return {.weight = operand_of<3>(weight),
          .input_channels = weight.sizes[1],
          .groups = c.groups,
          .packed = c.packed.has_value() ? TensorView(*c.packed).data : nullptr};
}

// The convolution as a kernel takes it; only depthwise ones have a `multiplier`.
Conv1dParams make_params(const Convolution& c, const TensorView& result) {
  const TensorView input(c.input), weight(c.weight);
  const std::vector<int64_t> sizes = sizes_of(input);
  Conv1dParams params{{
      .input = operand_of<3>(input),
      .output = operand_of<3>(result),
      .weight = operand_of<2>(weight, std::array{weight.strides[0], weight.strides[weight.rank - 1]}),
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
  c.pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return c.pre.strides(k, sizes); });
  c.post.fill(params.post, params.post_operands, [&](std::size_t k) { return c.post.strides(k, c.sizes); });
  return params;
}

Conv1dProblem make_problem(const Convolution& c, const Conv1dParams& params) {
  Conv1dProblem problem = problem_of(params);  // as if it were depthwise
  problem.input_channels = c.input.size(1);
  problem.groups = c.groups;
  return problem;
}

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

bool is_depthwise(const Convolution& c) {
  return is_depthwise({.input_channels = c.input.size(1), .channels = c.sizes[1], .groups = c.groups}, c.schedule);
}

void check_forced(const Convolution& c, const char* reason_for_aten) {
  check(c.schedule.automatic, c.op, ": schedule must be auto here, because ", reason_for_aten, "; got ",
        name_of(c.schedule.schedule));
}

// A result without elements takes no kernel, but a schedule that does not suit the convolution is refused all the same.
void check_empty([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  if (!is_depthwise(c)) check_forced(c, kForcedReason);
#endif
}

// Of what the pass of `pre` leaves.
std::vector<int64_t> strides_like_input(const Convolution& c) {
  const TensorView input(c.input);
  return layout_strides(input, sizes_of(input), /*spatial=*/1);
}

// The input behind a pass of `pre`, rounded to the input's dtype as it would be inside of a kernel.
Tensor input_behind_pre(const Convolution& c) {
  const TensorView source(c.input);
  if (c.pre.empty() || source.elements() == 0) return c.input;
  const Tensor input = allocate(c.op, sizes_of(source), strides_like_input(c), source.dtype, source);
  run_transform(c.op, source, TensorView(input), c.pre, ScheduleRequest{});
  return input;
}

template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const Question& question,
                                       const Output& output);

#ifdef SLUICE_CUDA_LIBRARY
// What a dense kernel without its chains computes, between passes of them: the bits of the linked one, because the sums
// between are not rounded.
void run_in_passes(const Convolution& c, const TensorView& target) {
  Convolution plain = c;
  plain.input = input_behind_pre(c);
  plain.pre.clear();
  plain.post.clear();
  const auto run = [&](const TensorView& output) {
    const bool done = run_kernels(plain, output, kCompute, [&] { return output; }).has_value();
    check(done, c.op, ": the kernel that has room with its chains has none without them");
  };
  if (c.post.empty()) return run(target);
  plain.dtype = DType::float32;
  const Tensor sums = allocate(c.op, c.sizes, c.strides, plain.dtype, target);
  run(TensorView(sums));
  run_transform(c.op, TensorView(sums), target, c.post, ScheduleRequest{});
}
#endif

#ifndef SLUICE_CUDA_LIBRARY
// A depthwise convolution of rows too short for vectors of their own, as a stencil over planes of one row, which are
// turned (planes_cpu.h); nothing where it is not one.
bool run_as_planes(const Conv1dParams& p) {
  const bool fits = p.stride == 1 && p.dilation == 1 && p.multiplier == 1 && !p.history.exists();
  if (!fits || p.output_length >= kNarrowPlane) return false;
  const auto plane = [](const Operand<3>& rows, long long width) {
    return Operand<4>{rows.data, rows.dtype, {rows.strides[0], rows.strides[1], width, rows.strides[2]}};
  };
  Filter2dParams stencil{{
      .image = plane(p.input, p.length),
      .output = plane(p.output, p.output_length),
      .kernel = {p.weight.data, p.weight.dtype, {p.weight.strides[0], 0, p.weight.strides[1]}},
      .row_taps = {},
      .bias = p.bias,
      .batch = p.batch,
      .channels = p.channels,
      .height = 1,
      .width = p.length,
      .output_height = 1,
      .output_width = p.output_length,
      .kernel_height = 1,
      .kernel_width = p.taps,
      .top = 0,
      .left = p.padding,
  }};
  if (!p.pre.empty() || p.post.operands > 0) return false;
  stencil.post = p.post;
  const Filter2dCpuTiles tiles = tiles_on_cpu(stencil);
  if (tiles.way != Filter2dCpuWay::planes) return false;
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, tiles.count, tiles.grain,
                                [&](int64_t first, int64_t last) { filter2d_cpu<set>(stencil, tiles, first, last); });
  });
  return true;
}
#endif

// The one road to a kernel of sluice's own, whatever is asked: the problem, its plan, and then the launch into what
// `output` gives, the link, or the text. Nothing where aten makes the sums; else why the chains were not linked, or the
// text, which says so too. `result` is the output, or stands for it.
template <class Output>
std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const Question& question,
                                       [[maybe_unused]] const Output& output) {
  Conv1dParams params = make_params(c, result);
  const Conv1dProblem problem = make_problem(c, params);
  const bool chained = !c.pre.empty() || !c.post.empty();
  const auto planned = [&](const DeviceProperties& device, bool linked) {
    const Conv1dPlan plan = plan_conv1d(problem, c.schedule, device, linked);
    if (plan.which == Conv1dMethod::aten) {
      check_forced(c, plan.reason);
    } else {
      check_plan(c.op, plan, c.schedule);
    }
    return plan;
  };
  if (question.explains()) {
    const Conv1dPlan plan = planned(question.device, chained && question.linked);
    std::string detail = describe(plan);
    if (plan.which == Conv1dMethod::dense && chained && !question.linked) detail += "; chains in passes of their own";
    return plan_text(plan, question, chained, result.elements(), detail);
  }
#ifdef SLUICE_CUDA_LIBRARY
  const DeviceScope device(c.op, result.device_index);
  const DeviceProperties& properties = properties_of(c.op, result.device_index);
  Conv1dPlan plan = planned(properties, chained);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  Form form{.reason = kNoChain};
  if (chained) {
    form = choose_form(c.op, link_request(params, plan), device, result.elements(), question.run);
    if (form.kernel == nullptr) plan = planned(properties, false);
    if (plan.which == Conv1dMethod::aten) return std::nullopt;
  }
  if (!question.computes()) return form.why();
  const TensorView target = output();
  if (plan.which == Conv1dMethod::dense && chained && form.kernel == nullptr) {
    run_in_passes(c, target);
    return std::string();
  }
  params.output.data = target.data;
  const std::optional<Tensor> workspace = allocate_workspace(c.op, plan, target);
  void* const memory = workspace.has_value() ? TensorView(*workspace).data : nullptr;
  device.check_launch(launch_conv1d(params, plan, form.kernel, memory, device.stream()));
  return std::string();
#else
  c.pre.check_interpreted(c.op);
  c.post.check_interpreted(c.op);
  if (!is_depthwise(c)) return std::nullopt;
  if (!question.computes()) return chained ? kOnCpu : kNoChain;
  params.output.data = output().data;
  if (run_as_planes(params)) return std::string();
  const DepthwiseTiles tiles = tiles_on_cpu(params);
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, tiles.count, tiles.grain,
                                [&](int64_t first, int64_t last) { depthwise_cpu<set>(params, tiles, first, last); });
  });
  return std::string();
#endif
}

#ifdef SLUICE_CUDA_LIBRARY
// As a row of an image that lies channels-last, which cuDNN reads as it is: torch copies (B, C, L) to rows of positions
// first (H200, float16: 1.2 to 2.3 times as long).
bool is_row_of_image(const TensorView& input) {
  return size_of(input.dtype) == 2 && input.strides[1] == 1 && input.sizes[1] > 1 && input.strides[2] >= input.sizes[1];
}
#endif

// aten's convolution after the pass of `pre`, in the input's dtype; `post` is still to come. Half precision on the CPU
// goes through float32, which aten's kernels are ten times faster in (torch 2.13, one core: 112 ms against 1.3 s for
// 4 x 64 x 4096 with 7 taps).
Tensor convolve_with_aten(const Convolution& c) {
  const TensorView source(c.input);
  DType dtype = source.dtype;
#ifdef SLUICE_CUDA_LIBRARY
  // A depthwise sum is always full float32: aten might take TF32 for it.
  if (is_depthwise(c)) dtype = DType::float64;
#else
  if (dtype == DType::float16) dtype = DType::float32;
#endif

  Tensor input = aten::to_dtype(input_behind_pre(c), dtype);
  int64_t padding = c.padding;
  if (c.history.has_value()) {
    input = aten::concatenate_last(aten::to_dtype(*c.history, dtype), input);
    padding = 0;
  } else if (c.padding != c.padding_right) {
    input = aten::pad_last(input, c.padding, c.padding_right);
    padding = 0;
  }
  Tensor weight = aten::to_dtype(c.weight, dtype);
  if (weight.dim() == 2) weight = aten::unsqueeze(weight, 1);
  const std::optional<Tensor> bias = aten::to_dtype(c.bias, dtype);
#ifdef SLUICE_CUDA_LIBRARY
  if (is_row_of_image(TensorView(input))) {
    const Tensor row = aten::convolution_of_row(aten::unsqueeze(input, 2), aten::unsqueeze(weight, 2), bias, c.stride,
                                                padding, c.dilation, c.groups);
    return aten::squeeze(row, 2);
  }
#endif
  return aten::convolution(input, weight, bias, c.stride, padding, c.dilation, c.groups);
}

// The passes in front of aten's convolution and behind it, into `result`: linked, or why they are not.
std::string prepare_passes(const Convolution& c, const TensorView& result, const Question& question) {
  std::string reason;
  if (!c.pre.empty()) {
    const TensorView input(c.input);
    const std::vector<int64_t> sizes = sizes_of(input), strides = strides_like_input(c);
    reason =
        run_transform(c.op, input, TensorView(input, sizes, strides, input.dtype), c.pre, ScheduleRequest{}, question);
  }
  if (c.post.empty()) return c.pre.empty() ? kNoChain : reason;
  const std::string behind = run_transform(c.op, result, result, c.post, ScheduleRequest{}, question);
  return reason.empty() ? behind : reason;
}

}  // namespace

void check_out_overlap(const Convolution& c, const char* input, const TensorView& out) {
  check_no_overlap(c.op, out, input, c.input);
  check_no_overlap(c.op, out, "weight", c.weight);
  check_no_overlap(c.op, out, "packed", c.packed);
  check_no_overlap(c.op, out, "bias", c.bias);
  check_no_overlap(c.op, out, "initial_states", c.history);
  c.pre.check_no_overlap(c.op, out, "an operand of pre", /*may_be_same=*/false);
  c.post.check_no_overlap(c.op, out, "an operand of post", /*may_be_same=*/true);
}

void run_convolution(const Convolution& c, const Tensor& output) {
  const TensorView target(output);
  if (is_empty(c)) return check_empty(c);
  if (run_kernels(c, target, kCompute, [&] { return target; }).has_value()) return;
  run_transform(c.op, TensorView(convolve_with_aten(c)), target, c.post, ScheduleRequest{});
}

Tensor convolve(const Convolution& c) {
  const TensorView input(c.input);
  if (is_empty(c)) {
    check_empty(c);
    return allocate(c.op, c.sizes, c.strides, c.dtype, input);
  }
  std::optional<Tensor> output;
  const auto allocated = [&] {
    output = allocate(c.op, c.sizes, c.strides, c.dtype, input);
    return TensorView(*output);
  };
  if (run_kernels(c, TensorView(input, c.sizes, c.strides, c.dtype), kCompute, allocated).has_value()) return *output;

  Tensor result = convolve_with_aten(c);
  const TensorView view(result);
  if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
    if (!c.post.empty()) run_transform(c.op, view, view, c.post, ScheduleRequest{});
    return restrided(c.op, result, c.strides);
  }
  run_transform(c.op, view, allocated(), c.post, ScheduleRequest{});
  return *output;
}

std::string ask_convolution(const Convolution& c, const TensorView* out, const Question& question) {
  const TensorView result = out != nullptr ? *out : TensorView(TensorView(c.input), c.sizes, c.strides, c.dtype);
  if (is_empty(c)) {
    check_empty(c);
    return kEmptyResult;
  }
  const std::optional<std::string> answer = run_kernels(c, result, question, [&] { return result; });
  return answer.has_value() ? *answer : prepare_passes(c, result, question);
}

}  // namespace sluice
