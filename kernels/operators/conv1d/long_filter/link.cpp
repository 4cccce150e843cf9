#include "kernels/operators/conv1d/link.h"
#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/long_filter/fragment_layout.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/long_filter/kernels.def"
};

}  // namespace

LinkRequest long_filter_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const KernelTable table("conv1d", kRows);
  LinkRequest request = table.request(plan.long_filter.which, params.input.dtype);
  set_chains(request, params);
  set_tensor_dtypes(request, params);
  return request;
}

}  // namespace sluice
