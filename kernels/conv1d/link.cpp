#include "kernels/conv1d/link.h"

namespace sluice {

LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  return plan.which == Conv1dMethod::dense ? dense_link_request(params, plan) : depthwise_link_request(params, plan);
}

}  // namespace sluice
