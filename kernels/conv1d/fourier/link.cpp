#include "kernels/conv1d/link.h"
#include "kernels/conv1d/fourier/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {

LinkRequest fourier_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const NameTable entries("sluice_conv1d_fourier", {{"whole", "parts"}});
  static const NameTable modules("conv1d_fourier", {{"whole", "parts"}});
  const bool is_partitioned = plan.fourier.partitions > 1;
  LinkRequest request{.module = modules(is_partitioned), .kernel = entries(is_partitioned)};
  request.pre = chain_call(params.pre, params.pre_operands, kFourierChainWidth, kFourierSlices);
  request.post = chain_call(params.post, params.post_operands, kFourierChainWidth, kFourierSlices);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history.dtype;
  return request;
}

}  // namespace sluice
