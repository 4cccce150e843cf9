#include "kernels/operators/transform/link.h"

#include "kernels/linking/kernel_table.h"
#include "kernels/operators/transform/policy.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/transform/kernels.def"
};

}  // namespace

LinkRequest link_request(const TransformParams& params, const TransformPlan& plan) {
  static const KernelTable table("transform", kRows, schedule_variants());
  LinkRequest request = table.request(plan.which, params.input.dtype, plan.schedule);
  set_chain(request.post, params.program, params.operands);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  return request;
}

}  // namespace sluice
