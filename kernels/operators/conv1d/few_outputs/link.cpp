#include "kernels/operators/conv1d/link.h"
#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/few_outputs/policy.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/few_outputs/kernels.def"
};

}  // namespace

LinkRequest few_outputs_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const KernelTable table("conv1d", kRows);
  const DType dtype = params.input.dtype;
  LinkRequest request = table.request(kernel_of(plan.few_outputs), dtype);
  set_chains(request, params);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  // A missing bias must not change the link key: use the input's dtype.
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.exists() ? params.bias.dtype : dtype;
  return request;
}

}  // namespace sluice
