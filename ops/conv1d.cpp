// conv1d: arguments to a Convolution, its shapes and dtypes checked.
#include <utility>

#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/dispatch.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/convolution.h"
#include "ops/convolution_shapes.h"
#include "ops/pack.h"

namespace sluice {
namespace {

constexpr const char* kOp = "conv1d";

Sizes span_of(const TensorView& view) { return {view.sizes, static_cast<std::size_t>(view.rank)}; }

// (C, L) as (1, C, L).
Tensor batched(const Tensor& tensor) { return tensor.dim() == 2 ? aten::unsqueeze(tensor, 0) : tensor; }

struct Call {
  Convolution convolution;
  bool is_batched;  // else input and result are (channel, position) to the caller
};

Call check_arguments(const Tensor& given, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride,
                     int64_t padding, int64_t dilation, int64_t groups, const std::string& pre,
                     const OptionalTensors& pre_operands, const std::string& post, const OptionalTensors& post_operands,
                     const std::optional<ScalarType>& dtype, const std::string& schedule,
                     const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right,
                     const std::optional<Tensor>& packed) {
  const Tensor input = batched(given);
  const TensorView view(input), kernel(weight);
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  const int64_t right = padding_right.value_or(padding);
  check_floating(kOp, "input", view);
  const ConvolutionShapes shapes{.input = span_of(view),
                                 .weight = span_of(kernel),
                                 .stride = stride,
                                 .padding = padding,
                                 .padding_right = right,
                                 .dilation = dilation,
                                 .groups = groups};
  const std::vector<int64_t> sizes = check_shapes(kOp, shapes, offset);
  const auto check_like_input = [&](const char* argument, const TensorView& tensor) {
    check(tensor.scalar_type == view.scalar_type, kOp, ": ", argument, " must have dtype ", name_of(view.scalar_type),
          " like the input, got ", name_of(tensor.scalar_type));
    check_device(kOp, argument, tensor, view);
  };
  check_like_input("weight", kernel);
  if (offset.has_value()) check_like_input("bias", *offset);
  if (packed.has_value()) check_packed(kOp, TensorView(*packed), kernel, view);
  const ScheduleRequest request = check_schedule(kOp, schedule, depth);
  Chain before(kOp, "pre", pre, pre_operands, view, sizes_of(view));
  Chain after(kOp, "post", post, post_operands, view, sizes);
  const DType result = check_result_dtype(kOp, dtype).value_or(after.result_dtype().value_or(view.dtype));
  for (Chain* chain : {&before, &after}) chain->program.set_precision(view.dtype, result);
  return {.convolution = {.op = kOp,
                          .input = input,
                          .weight = weight,
                          .packed = packed,
                          .bias = bias,
                          .stride = stride,
                          .padding = padding,
                          .padding_right = right,
                          .dilation = dilation,
                          .groups = groups,
                          .pre = std::move(before),
                          .post = std::move(after),
                          .dtype = result,
                          .schedule = request,
                          .sizes = sizes,
                          .strides = layout_strides(view, sizes, /*spatial=*/1)},
          .is_batched = given.dim() != 2};
}

Tensor conv1d(const Call& call) {
  const Tensor output = convolve(call.convolution);
  return call.is_batched ? output : aten::squeeze(output, 0);
}

// As the convolution writes it.
Tensor checked_out(const Call& call, const Tensor& out) {
  const Convolution& c = call.convolution;
  std::vector<int64_t> sizes = c.sizes;
  if (!call.is_batched) sizes.erase(sizes.begin());
  const TensorView view(out);
  check_out(kOp, view, sizes, c.dtype, TensorView(c.input));
  check_out_overlap(c, "input", view);
  return batched(out);
}

void conv1d_out(const Call& call, const Tensor& out) {
  const Tensor output = checked_out(call, out);
  aten::raise_version(kOp, out);
  run_convolution(call.convolution, output);
}

std::string ask(const Call& call, const std::optional<Tensor>& out, const Question& question) {
  if (!out.has_value()) return ask_convolution(call.convolution, nullptr, question);
  const Tensor output = checked_out(call, *out);
  const TensorView view(output);
  return ask_convolution(call.convolution, &view, question);
}

std::string prepare_conv1d(const Call& call, const std::optional<Tensor>& out) {
  return ask(call, out, {.run = Run::prepare});
}

#ifndef SLUICE_CUDA_LIBRARY
std::string plan_conv1d(const Call& call, const std::optional<Tensor>& out, bool linked,
                        const std::vector<int64_t>& device) {
  return ask(call, out, plan_question(kOp, linked, device, call.convolution.sizes));
}
#endif

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("conv1d", TORCH_BOX((raw_op<check_arguments, conv1d>)));
  m.impl("conv1d_out", TORCH_BOX((raw_op<check_arguments, conv1d_out>)));
  m.impl("_prepare_conv1d", TORCH_BOX((raw_op<check_arguments, prepare_conv1d>)));
}

#ifndef SLUICE_CUDA_LIBRARY
#define SLUICE_CONV1D_ARGUMENTS                                                                                      \
  "Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int padding=0, int dilation=1, int groups=1, *, "   \
  "str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None, ScalarType? dtype=None, " \
  "str schedule=\"auto\", int? depth=None, int? padding_right=None, Tensor? packed=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("conv1d(" SLUICE_CONV1D_ARGUMENTS ") -> Tensor");
  m.def("conv1d_out(" SLUICE_CONV1D_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def("_prepare_conv1d(" SLUICE_CONV1D_ARGUMENTS ", Tensor? out=None) -> str");
  m.def("_plan_conv1d(" SLUICE_CONV1D_ARGUMENTS ", Tensor? out=None, bool linked, int[] device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  m.impl("_plan_conv1d", TORCH_BOX((raw_op<check_arguments, plan_conv1d>)));
}
#endif

}  // namespace sluice
