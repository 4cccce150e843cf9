#include "kernels/conv1d/link.h"

#include "kernels/conv1d/depthwise/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {
namespace {

// The entries of linked_*.cu.in: sluice_conv1d_<rows or channels>_<dtype>_<schedule>, or another kernel of `direct` in
// its place.
std::string_view entry_name(const Conv1dPlan& plan, DType dtype) {
  static const NameTable entries = [] {
    NameParts kernels = schedule_names();
    kernels.insert(kernels.end(), {"plain", "few_taps"});
    return NameTable("sluice_conv1d", {{"rows", "channels"}, dtype_names(), kernels});
  }();
  const DepthwiseKernel which = plan.depthwise.which;
  const bool channels = takes_channels(which);
  if (which == DepthwiseKernel::plain_rows) return entries(channels, dtype, kSchedules);
  if (takes_few_taps(which)) return entries(channels, dtype, kSchedules + 1);
  return entries(channels, dtype, plan.schedule);
}

std::string_view module_name(const Conv1dPlan& plan, DType dtype) {
  static const NameTable direct("conv1d", {{"rows", "channels"}, dtype_names()});
  static const NameTable staged("conv1d_staged", {{"rows", "channels"}, dtype_names()});
  static const NameTable few_taps("conv1d_few_taps", {dtype_names()});
  const DepthwiseKernel which = plan.depthwise.which;
  if (takes_few_taps(which)) return few_taps(dtype);
  return (plan.schedule == Schedule::direct ? direct : staged)(takes_channels(which), dtype);
}

}  // namespace

LinkRequest depthwise_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DType dtype = params.input.dtype;
  const bool channels = takes_channels(plan.depthwise.which);
  LinkRequest request{
      .module = module_name(plan, dtype), .kernel = entry_name(plan, dtype), .wide = dtype == DType::float64};
  const int width = word_elements(dtype);
  request.pre = linked_slot(params.pre, params.pre_operands, width, 1);
  if (takes_few_taps(plan.depthwise.which)) {
    const int vector = channels ? kFewTapsChannels : width;
    request.post = linked_slot(params.post, params.post_operands, vector, kFewTapsChained / vector);
  } else {
    request.post = channels ? linked_slot(params.post, params.post_operands, width, kPositions)
                            : linked_slot(params.post, params.post_operands, conv1d_row_outputs(dtype), 1);
  }
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history.dtype;
  return request;
}

}  // namespace sluice
