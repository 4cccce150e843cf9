#include "kernels/conv1d/link.h"

#include "kernels/common/int_math.h"
#include "kernels/conv1d/depthwise/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {
namespace {

// The entries of linked_*.cu.in: sluice_conv1d_<rows or channels>_<dtype>_<schedule>, or another kernel of `direct`
// instead.
std::string_view entry_name(const Conv1dPlan& plan, DType dtype) {
  static const NameTable entries = [] {
    NameFields kernels = schedule_names();
    kernels.insert(kernels.end(), {"plain", "few_taps", "window", "window_pairs", "gated", "eight_taps"});
    return NameTable("sluice_conv1d", {{"rows", "channels"}, dtype_names(), kernels});
  }();
  const DepthwiseKernel which = plan.depthwise.which;
  const bool channels = takes_channels(which);
  if (which == DepthwiseKernel::plain_rows) return entries(channels, dtype, kSchedules);
  if (which == DepthwiseKernel::gated_channels) return entries(channels, dtype, kSchedules + 4);
  if (which == DepthwiseKernel::eight_taps_channels) return entries(channels, dtype, kSchedules + 5);
  if (takes_few_taps(which)) return entries(channels, dtype, kSchedules + 1);
  if (takes_windows(which)) return entries(channels, dtype, kSchedules + 1 + plan.depthwise.width);
  return entries(channels, dtype, plan.schedule);
}

std::string_view module_name(const Conv1dPlan& plan, DType dtype) {
  static const NameTable direct("conv1d", {{"rows", "channels"}, dtype_names()});
  static const NameTable staged("conv1d_staged", {{"rows", "channels"}, dtype_names()});
  static const NameTable few_taps("conv1d_few_taps", {dtype_names()});
  static const NameTable windows("conv1d", {{"windows", "window_pairs"}, dtype_names()});
  const DepthwiseKernel which = plan.depthwise.which;
  if (takes_few_taps(which)) return few_taps(dtype);
  if (takes_windows(which)) return windows(plan.depthwise.width - 1, dtype);
  return (plan.schedule == Schedule::direct ? direct : staged)(takes_channels(which), dtype);
}

}  // namespace

LinkRequest depthwise_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DType dtype = params.input.dtype;
  const bool channels = takes_channels(plan.depthwise.which);
  LinkRequest request{
      .module = module_name(plan, dtype), .kernel = entry_name(plan, dtype), .wide = dtype == DType::float64};
  const int width = word_elements(dtype);
  request.pre = chain_call(params.pre, params.pre_operands, width, 1);
  const auto post = [&](int vector, int slices) {
    return chain_call(params.post, params.post_operands, vector, slices);
  };
  switch (plan.depthwise.which) {
    case DepthwiseKernel::few_taps_rows: request.post = post(width, kFewTapsChained / width); break;
    case DepthwiseKernel::gated_channels:
    case DepthwiseKernel::eight_taps_channels:
      request.pre = chain_call(params.pre, params.pre_operands, kFewTapsChannels, 1);
      [[fallthrough]];
    case DepthwiseKernel::few_taps_channels:
      request.post = post(kFewTapsChannels, kFewTapsChained / kFewTapsChannels);
      break;
    case DepthwiseKernel::plain_rows: request.post = post(width, plain_row_words(dtype)); break;
    case DepthwiseKernel::window_rows: request.post = post(width, ceil_div(kWindowOutputs, width)); break;
    case DepthwiseKernel::window_channels: request.post = post(kWindowChained, plan.depthwise.width); break;
    default: request.post = channels ? post(width, kPositions) : post(conv1d_row_outputs(dtype), 1);
  }
  set_tensor_dtypes(request, params);
  return request;
}

}  // namespace sluice
