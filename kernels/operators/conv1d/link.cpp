#include "kernels/operators/conv1d/link.h"

namespace sluice {

void set_tensor_dtypes(LinkRequest& request, const Conv1dParams& params) {
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history.dtype;
}

LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  switch (plan.which) {
    case Conv1dMethod::dense: return dense_link_request(params, plan);
    case Conv1dMethod::long_filter: return long_filter_link_request(params, plan);
    case Conv1dMethod::few_outputs: return few_outputs_link_request(params, plan);
    case Conv1dMethod::fourier: return fourier_link_request(params, plan);
    default: return depthwise_link_request(params, plan);
  }
}

}  // namespace sluice
