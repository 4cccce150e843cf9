#include "kernels/conv1d/link.h"

namespace sluice {

LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  switch (plan.which) {
    case Conv1dMethod::dense: return dense_link_request(params, plan);
    case Conv1dMethod::long_filter: return long_filter_link_request(params, plan);
    default: return depthwise_link_request(params, plan);
  }
}

}  // namespace sluice
