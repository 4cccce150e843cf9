#include "ops/convolution/convolution.h"

#include "ops/common/allocate.h"
#include "ops/common/checks.h"
#include "ops/convolution/aten.h"
#include "ops/convolution/launches.h"
#include "ops/convolution/params.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// A result without elements needs no kernel, but an unsuitable schedule is refused all the same.
void check_empty([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  if (!is_depthwise(c)) check_forced(c, kForcedReason);
#endif
}

}  // namespace

std::optional<std::string> run_kernels(const Convolution& c, const TensorView& result, const CallMode& mode,
                                       const OutputOf& output) {
  Conv1dParams params = make_params(c, result);
  if (c.is_transposed) return run_transposed(c, params, result, mode, output);
  if (std::optional<std::string> answer = run_by_rows(c, params, result, mode, output)) return answer;
  return run_problem(c, params, result, mode, output);
}

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
  const ChainAfterAten after(c);
  run_transform(c.op, TensorView(convolve_with_aten(c, after)), target, after.chain(), ScheduleRequest{});
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

  const ChainAfterAten after(c);
  Tensor result = convolve_with_aten(c, after);
  const TensorView view(result);
  if (view.dtype == c.dtype && view.has_strides(c.strides.data())) {
    if (!c.post.empty()) run_transform(c.op, view, view, after.chain(), ScheduleRequest{});
    return restrided(c.op, result, c.strides);
  }
  run_transform(c.op, view, allocated(), after.chain(), ScheduleRequest{});
  return *output;
}

std::string prepare_or_plan_convolution(const Convolution& c, const TensorView* out, const CallMode& mode) {
  const TensorView result = out != nullptr ? *out : TensorView(TensorView(c.input), c.sizes, c.strides, c.dtype);
  if (is_empty(c)) {
    check_empty(c);
    return kEmptyResult;
  }
  const std::optional<std::string> answer = run_kernels(c, result, mode, [&] { return result; });
  return answer.has_value() ? *answer : prepare_passes(c, result, mode);
}

}  // namespace sluice
