#include "kernels/conv1d/link.h"
#include "kernels/conv1d/fourier/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {

LinkRequest fourier_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const NameTable entries("sluice_conv1d_fourier", {{"whole", "parts"}});
  static const NameTable modules("conv1d_fourier", {{"whole", "parts"}});
  const bool in_parts = plan.fourier.parts > 1;
  LinkRequest request{.module = modules(in_parts), .kernel = entries(in_parts)};
  request.pre = linked_slot(params.pre, params.pre_operands, kFourierChainWidth, kFourierSlices);
  request.post = linked_slot(params.post, params.post_operands, kFourierChainWidth, kFourierSlices);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history.dtype;
  return request;
}

}  // namespace sluice
