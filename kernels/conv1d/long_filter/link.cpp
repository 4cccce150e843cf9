#include "kernels/conv1d/link.h"
#include "kernels/conv1d/long_filter/places.h"
#include "kernels/linking/entry_names.h"

namespace sluice {

LinkRequest long_filter_link_request(const Conv1dParams& params, const Conv1dPlan&) {
  static const NameTable entries("sluice_conv1d_long_filter", {dtype_names()});
  static const NameTable modules("conv1d_long_filter", {dtype_names()});
  LinkRequest request{.module = modules(params.input.dtype), .kernel = entries(params.input.dtype)};
  request.pre = linked_slot(params.pre, params.pre_operands, kVectorOutputs, 1);
  request.post = linked_slot(params.post, params.post_operands, kVectorOutputs, kLaneVectors);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history.dtype;
  return request;
}

}  // namespace sluice
