#include "kernels/operators/filter2d/link.h"

#include "kernels/linking/kernel_table.h"
#include "kernels/operators/filter2d/policy.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/filter2d/kernels.def"
};

}  // namespace

LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan) {
  static const KernelTable table("filter2d", kRows, schedule_variants());
  LinkRequest request = table.request(plan.which, params.image.dtype, plan.schedule);
  set_chains(request, params);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  return request;
}

}  // namespace sluice
