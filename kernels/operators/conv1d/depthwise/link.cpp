#include "kernels/operators/conv1d/link.h"
#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/depthwise/kernels.def"
};

}  // namespace

LinkRequest depthwise_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const KernelTable table("conv1d", kRows, schedule_variants());
  LinkRequest request = table.request(plan.depthwise.which, params.input.dtype, plan.schedule);
  set_chains(request, params);
  set_tensor_dtypes(request, params);
  return request;
}

}  // namespace sluice
