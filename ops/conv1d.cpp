#include "ops/convolution.h"

#include "kernels/conv1d/conv1d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/conv1d_shapes.h"
#include "ops/common/dispatch.h"
#include "ops/common/launch.h"
#include "ops/common/plan_text.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/conv1d/launch.h"
#endif

namespace sluice {
namespace {

constexpr const char* kOp = "conv1d";

Sizes span_of(const TensorView& view) { return {view.sizes, static_cast<std::size_t>(view.rank)}; }

// (C, L) as (1, C, L).
Tensor batched(const Tensor& tensor) { return tensor.dim() == 2 ? aten::unsqueeze(tensor, 0) : tensor; }

Convolution check_arguments(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride,
                            int64_t padding, int64_t dilation, int64_t groups, const std::string& pre,
                            const OptionalTensors& pre_operands, const std::string& post, const OptionalTensors& post_operands,
                            const std::optional<ScalarType>& dtype, const std::string& schedule,
                            const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right) {
  const Tensor three = batched(input);
  const TensorView view(three), kernel(weight);
  std::optional<TensorView> offset;
  if (bias.has_value()) offset.emplace(*bias);
  const int64_t right = padding_right.value_or(padding);
  check_floating(kOp, "input", view);
  const int64_t length =
      check_conv1d_shapes(kOp, span_of(view), span_of(kernel), offset, stride, padding, right, dilation, groups);
  const auto check_like_input = [&](const char* argument, const TensorView& tensor) {
    check(tensor.scalar_type == view.scalar_type, kOp, ": ", argument, " must have dtype ", name_of(view.scalar_type),
          " like the input, got ", name_of(tensor.scalar_type));
    check_device(kOp, argument, tensor, view);
  };
  check_like_input("weight", kernel);
  if (offset.has_value()) check_like_input("bias", *offset);
  const ScheduleRequest request = check_schedule(kOp, schedule, depth);
  const std::vector<int64_t> sizes = conv1d_result_sizes(span_of(view), span_of(kernel), length);
  Chain before(kOp, "pre", pre, pre_operands, view, sizes_of(view));
  Chain after(kOp, "post", post, post_operands, view, sizes);
  const DType result = check_result_dtype(kOp, dtype).value_or(after.result_dtype().value_or(view.dtype));
  return {kOp,          three,   weight,  bias,
          std::nullopt, stride,  padding, right,
          dilation,     groups,  before,  std::move(after),
          result,       request, sizes,   layout_strides(view, sizes, /*spatial=*/1)};
}

MethodChoice method_of(const Convolution& c) {
  return choose_method({.input_channels = c.input.size(1), .channels = c.sizes[1], .groups = c.groups}, c.schedule);
}

#ifdef SLUICE_CUDA_LIBRARY
Conv1dParams make_params(const Convolution& c, const TensorView& output) {
  const TensorView input(c.input), weight(c.weight);
  Conv1dParams params{};
  params.input = input.data;
  params.weight = weight.data;
  params.output = output.data;
  params.input_dtype = input.dtype;
  params.weight_dtype = weight.dtype;
  params.output_dtype = output.dtype;
  params.batch = c.sizes[0];
  params.channels = c.sizes[1];
  params.output_length = c.sizes[2];
  params.length = input.sizes[2];
  params.multiplier = static_cast<int>(c.sizes[1] / input.sizes[1]);
  params.taps = static_cast<int>(weight.sizes[weight.rank - 1]);
  params.stride = c.stride;
  params.padding = c.padding;
  params.dilation = c.dilation;
  params.weight_strides[0] = weight.strides[0];
  params.weight_strides[1] = weight.strides[weight.rank - 1];
  for (int d = 0; d < 3; ++d) {
    params.input_strides[d] = input.strides[d];
    params.output_strides[d] = output.strides[d];
  }
  if (c.bias.has_value()) {
    const TensorView bias(*c.bias);
    params.bias = bias.data;
    params.bias_dtype = bias.dtype;
    params.bias_stride = bias.strides[0];
  }
  if (c.history.has_value()) {
    const TensorView history(*c.history);
    params.history = history.data;
    params.history_dtype = history.dtype;
    for (int d = 0; d < 3; ++d) params.history_strides[d] = history.strides[d];
  }
  const auto fill = [](const Chain& chain, const std::vector<int64_t>& sizes, Program& program, Operand<3>* operands) {
    program = chain.program;
    for (std::size_t k = 0; k < chain.operands.size(); ++k) {
      const std::vector<int64_t> strides = chain.strides(k, sizes);
      operands[k] = {chain.operands[k].data, chain.operands[k].dtype, {strides[0], strides[1], strides[2]}};
    }
  };
  fill(c.pre, sizes_of(input), params.pre, params.pre_operands);
  fill(c.post, c.sizes, params.post, params.post_operands);
  return params;
}

// Nothing where no kernel has room for so many taps and none was asked for; else why the chains were not linked.
std::optional<std::string> run_depthwise(const Convolution& c, const TensorView& output, Run run) {
  const int index = output.device_index;
  const Conv1dParams params = make_params(c, output);
  const DeviceScope device(c.op, index);
  const Conv1dProblem problem = problem_of(params);
  const auto planned = [&](bool linked) { return plan_conv1d(problem, c.schedule, properties_of(c.op, index), linked); };
  Conv1dPlan plan = planned(true);
  if (plan.which == Conv1dMethod::aten) return std::nullopt;
  check(plan.threads > 0, c.op, ": schedule must be able to run here: ", plan.reason, ", got ", name_of(plan.schedule),
        " at depth ", c.schedule.depth);
  Form form = choose_form(c.op, link_request(params, plan), device, output.elements(), run);
  if (form.kernel == nullptr) plan = planned(false);
  if (run == Run::now) device.check_launch(launch_conv1d(params, plan, form.kernel, device.stream()));
  return std::move(form.reason);
}
#endif

// Whether both put every element in the same place: a dimension of one element has no neighbours.
bool strides_match(const TensorView& view, const std::vector<int64_t>& strides) {
  for (int64_t d = 0; d < view.rank; ++d) {
    if (view.sizes[d] != 1 && view.strides[d] != strides[d]) return false;
  }
  return true;
}

// aten's convolution after the pass of `pre`; `post` is still to come. Half types come back as float32 on the
// CPU, where aten does not promise to sum them in it.
Tensor convolve_with_aten(const Convolution& c) {
  const TensorView source(c.input);
  const bool on_cpu = source.device_type == aoti_torch_device_type_cpu();
  DType dtype = on_cpu && source.dtype != DType::float64 ? DType::float32 : source.dtype;
  // A depthwise sum is always full float32: on the GPU aten might take TF32 for it.
  if (!on_cpu && method_of(c).method == Conv1dMethod::depthwise) dtype = DType::float64;
  const auto cast = [&](const Tensor& tensor) {
    return TensorView(tensor).dtype == dtype ? tensor : aten::to_dtype(tensor, dtype);
  };

  Tensor input = c.input;
  if (!c.pre.empty() && source.elements() > 0) {
    const std::vector<int64_t> sizes = sizes_of(source);
    input = allocate(c.op, sizes, layout_strides(source, sizes, /*spatial=*/1), source.dtype, source);
    run_transform(c.op, source, TensorView(input), c.pre, ScheduleRequest{});
  }
  input = cast(input);
  int64_t padding = c.padding;
  if (c.history.has_value()) {
    input = aten::concatenate_last(cast(*c.history), input);
    padding = 0;
  } else if (c.padding != c.padding_right) {
    input = aten::pad_last(input, c.padding, c.padding_right);
    padding = 0;
  }
  Tensor weight = cast(c.weight);
  if (weight.dim() == 2) weight = aten::unsqueeze(weight, 1);
  std::optional<Tensor> bias;
  if (c.bias.has_value()) bias = cast(*c.bias);
  return aten::convolution(input, weight, bias, c.stride, padding, c.dilation, c.groups);
}

bool is_empty(const Convolution& c) { return c.sizes[0] * c.sizes[1] * c.sizes[2] == 0; }

// Whether aten does the sums; refuses a schedule that was forced for them.
bool goes_through_aten([[maybe_unused]] const Convolution& c) {
#ifdef SLUICE_CUDA_LIBRARY
  const MethodChoice choice = method_of(c);
  const bool aten = choice.method == Conv1dMethod::aten;
  check(!aten || c.schedule.automatic, c.op, ": schedule must be auto here, because ", choice.reason, "; got ",
        name_of(c.schedule.schedule));
  return aten;
#else
  return true;
#endif
}

Tensor conv1d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride, int64_t padding,
              int64_t dilation, int64_t groups, const std::string& pre, const OptionalTensors& pre_operands,
              const std::string& post, const OptionalTensors& post_operands, const std::optional<ScalarType>& dtype,
              const std::string& schedule, const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right) {
  const Convolution c = check_arguments(input, weight, bias, stride, padding, dilation, groups, pre, pre_operands, post,
                                        post_operands, dtype, schedule, depth, padding_right);
  const Tensor output = convolve(c);
  return input.dim() == 2 ? aten::squeeze(output, 0) : output;
}

void conv1d_out(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride, int64_t padding,
                int64_t dilation, int64_t groups, const std::string& pre, const OptionalTensors& pre_operands,
                const std::string& post, const OptionalTensors& post_operands, const std::optional<ScalarType>& dtype,
                const std::string& schedule, const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right,
                const Tensor& out) {
  const Convolution c = check_arguments(input, weight, bias, stride, padding, dilation, groups, pre, pre_operands, post,
                                        post_operands, dtype, schedule, depth, padding_right);
  std::vector<int64_t> sizes = c.sizes;
  if (input.dim() == 2) sizes.erase(sizes.begin());
  const TensorView view(out);
  check_out(kOp, view, sizes, c.dtype, TensorView(input));
  check_no_overlap(kOp, view, "input", TensorView(input), /*may_be_same=*/false);
  check_no_overlap(kOp, view, "weight", TensorView(weight), /*may_be_same=*/false);
  if (bias.has_value()) check_no_overlap(kOp, view, "bias", TensorView(*bias), /*may_be_same=*/false);
  for (const TensorView& operand : c.pre.operands)
    check_no_overlap(kOp, view, "an operand of pre", operand, /*may_be_same=*/false);
  for (const TensorView& operand : c.post.operands)
    check_no_overlap(kOp, view, "an operand of post", operand, /*may_be_same=*/true);
  aten::raise_version(kOp, out);
  run_convolution(c, batched(out));
}

std::string prepare_conv1d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride,
                           int64_t padding, int64_t dilation, int64_t groups, const std::string& pre,
                           const OptionalTensors& pre_operands, const std::string& post, const OptionalTensors& post_operands,
                           const std::optional<ScalarType>& dtype, const std::string& schedule,
                           const std::optional<int64_t>& depth, const std::optional<int64_t>& padding_right) {
  return prepare_convolution(check_arguments(input, weight, bias, stride, padding, dilation, groups, pre, pre_operands, post,
                                             post_operands, dtype, schedule, depth, padding_right));
}

}  // namespace

void run_convolution(const Convolution& c, const Tensor& output) {
  const TensorView target(output);
  [[maybe_unused]] const bool through_aten = goes_through_aten(c);
  if (target.elements() == 0) return;
#ifdef SLUICE_CUDA_LIBRARY
  if (!through_aten && run_depthwise(c, target, Run::now).has_value()) return;
#endif
  run_transform(c.op, TensorView(convolve_with_aten(c)), target, c.post, ScheduleRequest{});
}

Tensor convolve(const Convolution& c) {
  if (goes_through_aten(c) && !is_empty(c)) {
    Tensor result = convolve_with_aten(c);
    const TensorView view(result);
    if (view.dtype == c.dtype && strides_match(view, c.strides)) {
      if (!c.post.empty()) run_transform(c.op, view, view, c.post, ScheduleRequest{});
      return restrided(c.op, result, c.strides);
    }
    Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, view);
    run_transform(c.op, view, TensorView(output), c.post, ScheduleRequest{});
    return output;
  }
  Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, TensorView(c.input));
  run_convolution(c, output);
  return output;
}

std::string prepare_convolution(const Convolution& c) {
  [[maybe_unused]] const bool through_aten = goes_through_aten(c);
  const TensorView input(c.input);
  if (is_empty(c)) return "the result is empty";
  const Tensor output = allocate(c.op, c.sizes, c.strides, c.dtype, input);
#ifdef SLUICE_CUDA_LIBRARY
  if (!through_aten) {
    if (const auto reason = run_depthwise(c, TensorView(output), Run::prepare)) return *reason;
  }
#endif
  // Passes of their own in front of aten's convolution and behind it.
  std::string reason;
  if (!c.pre.empty()) {
    const std::vector<int64_t> sizes = sizes_of(input);
    const Tensor before = allocate(c.op, sizes, layout_strides(input, sizes, /*spatial=*/1), input.dtype, input);
    reason = run_transform(c.op, input, TensorView(before), c.pre, ScheduleRequest{}, Run::prepare);
  }
  if (c.post.empty()) return c.pre.empty() ? "there is no chain" : reason;
  const std::string behind = run_transform(c.op, TensorView(output), TensorView(output), c.post, ScheduleRequest{}, Run::prepare);
  return reason.empty() ? behind : reason;
}

SLUICE_DEVICE_KERNELS(m) {
  m.impl("conv1d", TORCH_BOX(&conv1d));
  m.impl("conv1d_out", TORCH_BOX(&conv1d_out));
  m.impl("_prepare_conv1d", TORCH_BOX(&prepare_conv1d));
}

#ifndef SLUICE_CUDA_LIBRARY
namespace {

// `input` and `weight` are (batch, channels, length) and (out_channels, channels / groups, taps).
std::string plan(const std::vector<int64_t>& input, const std::vector<int64_t>& weight, int64_t stride, int64_t padding,
                 int64_t padding_right, int64_t dilation, int64_t groups, bool channels_last, bool pre, bool post,
                 bool post_operands, ScalarType dtype, const std::string& schedule, const std::optional<int64_t>& depth,
                 bool linked, const std::vector<int64_t>& device) {
  const int64_t length =
      check_conv1d_shapes("plan", input, weight, std::nullopt, stride, padding, padding_right, dilation, groups);
  const std::vector<int64_t> sizes = conv1d_result_sizes(input, weight, length);
  const ScheduleRequest request = check_schedule("plan", schedule, depth);
  const DType known = check_result_dtype("plan", dtype).value();
  const DeviceProperties gpu = device_from("plan", device);
  check_result("plan", sizes);
  const bool last = channels_last && sizes[1] == input[1];
  const Conv1dProblem problem{.batch = sizes[0],
                              .input_channels = input[1],
                              .channels = sizes[1],
                              .groups = groups,
                              .output_length = sizes[2],
                              .taps = static_cast<int>(weight[2]),
                              .stride = stride,
                              .dilation = dilation,
                              .dtype = known,
                              .channels_last = last,
                              .aligned = sizes[2] % 8 == 0,
                              .adjacent = !last || sizes[1] % 4 == 0,
                              .whole_words = sizes[1] % 8 == 0,
                              .has_pre = pre,
                              .has_post = post,
                              .has_tensors = post_operands};
  const Conv1dPlan made = plan_conv1d(problem, request, gpu, linked);
  if (made.which != Conv1dMethod::aten) return plan_text(made);
  check(request.automatic, "plan: schedule must be auto here, because ", made.reason, "; got ", schedule);
  return aten_plan_text(made);
}

}  // namespace

#define SLUICE_CONV1D_ARGUMENTS                                                                                      \
  "Tensor input, Tensor weight, Tensor? bias=None, int stride=1, int padding=0, int dilation=1, int groups=1, *, "   \
  "str pre=\"\", Tensor[]? pre_operands=None, str post=\"\", Tensor[]? post_operands=None, ScalarType? dtype=None, " \
  "str schedule=\"auto\", int? depth=None, int? padding_right=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("conv1d(" SLUICE_CONV1D_ARGUMENTS ") -> Tensor");
  m.def("_prepare_conv1d(" SLUICE_CONV1D_ARGUMENTS ") -> str");
  m.def("conv1d_out(" SLUICE_CONV1D_ARGUMENTS ", Tensor(a!) out) -> ()");
  m.def(
      "_plan_conv1d(int[] input, int[] weight, int stride, int padding, int padding_right, int dilation, int groups, "
      "bool channels_last, bool pre, bool post, bool post_operands, ScalarType dtype, str schedule, int? depth, bool linked, "
      "int[] device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) { m.impl("_plan_conv1d", TORCH_BOX(&plan)); }
#endif

}  // namespace sluice
