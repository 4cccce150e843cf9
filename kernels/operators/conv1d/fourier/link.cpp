#include "kernels/operators/conv1d/link.h"
#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/fourier/policy.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/fourier/kernels.def"
};

}  // namespace

LinkRequest fourier_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const KernelTable table("conv1d", kRows);
  LinkRequest request = table.request(kernel_of(plan.fourier), DType::float32);
  set_chains(request, params);
  set_tensor_dtypes(request, params);
  return request;
}

}  // namespace sluice
