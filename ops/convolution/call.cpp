#include "ops/convolution/call.h"

#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"

namespace sluice {
namespace {

// Checks `out` and returns it batched.
Tensor checked_out(const ConvolutionCall& call, const Tensor& out) {
  const Convolution& c = call.convolution;
  std::vector<int64_t> sizes = c.sizes;
  if (!call.is_batched) sizes.erase(sizes.begin());
  const TensorView view(out);
  check_out(c.op, view, sizes, c.dtype, TensorView(c.input));
  check_out_overlap(c, "input", view);
  return batched(out);
}

}  // namespace

Tensor batched(const Tensor& tensor) { return tensor.dim() == 2 ? aten::unsqueeze(tensor, 0) : tensor; }

void check_like_input(const char* op, const char* argument, const TensorView& tensor, const TensorView& input) {
  check(tensor.scalar_type == input.scalar_type, op, ": ", argument, " must have dtype ", name_of(input.scalar_type),
        " like the input, got ", name_of(tensor.scalar_type));
  check_device(op, argument, tensor, input);
}

void set_options(Convolution& c, const ConvolutionOptions& options) {
  const TensorView input(c.input);
  c.schedule = check_schedule(c.op, options.schedule, options.depth);
  c.allows_tf32 = check_allows_tf32(c.op, options.precision);
  c.pre = Chain(c.op, "pre", options.pre, options.pre_operands, input, sizes_of(input));
  c.post = Chain(c.op, "post", options.post, options.post_operands, input, c.sizes);
  c.dtype = check_result_dtype(c.op, options.dtype).value_or(c.post.result_dtype().value_or(input.dtype));
  for (Chain* chain : {&c.pre, &c.post}) chain->program.set_precision(input.dtype, c.dtype);
  c.strides = layout_strides(input, c.sizes, /*spatial=*/1);
}

Tensor convolve_call(const ConvolutionCall& call) {
  const Tensor output = convolve(call.convolution);
  return call.is_batched ? output : aten::squeeze(output, 0);
}

void convolve_call_out(const ConvolutionCall& call, const Tensor& out) {
  const Tensor output = checked_out(call, out);
  aten::raise_version(call.convolution.op, out);
  run_convolution(call.convolution, output);
}

std::string answer_call(const ConvolutionCall& call, const std::optional<Tensor>& out, const CallMode& mode) {
  check_planned(call.convolution.op, mode, call.convolution.sizes);
  if (!out.has_value()) return prepare_or_plan_convolution(call.convolution, nullptr, mode);
  const Tensor output = checked_out(call, *out);
  const TensorView view(output);
  return prepare_or_plan_convolution(call.convolution, &view, mode);
}

}  // namespace sluice
