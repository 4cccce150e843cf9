#include <array>
#include <string>

#include "kernels/filter2d/launch.h"
#include "kernels/filter2d/policy.h"

namespace sluice {
namespace {

// The entries of linked.cu: sluice_filter2d_<dtype>_<kernel, or with a ring the schedule>.
std::string_view entry_name(DType dtype, Filter2dKernel kernel, Schedule schedule) {
  constexpr int kDirect = 6;
  static const auto names = [] {
    std::array<std::array<std::string, kDirect + kSchedules>, 4> made;
    for (int d = 0; d < 4; ++d) {
      const std::string prefix = std::string("sluice_filter2d_") + name_of(static_cast<DType>(d)) + "_";
      for (int k = 0; k < kDirect; ++k) made[d][k] = prefix + kFilter2dKernelNames[k];
      for (int s = 0; s < kSchedules; ++s) made[d][kDirect + s] = prefix + name_of(static_cast<Schedule>(s));
    }
    return made;
  }();
  const int entry = kernel == Filter2dKernel::staged ? kDirect + static_cast<int>(schedule) : static_cast<int>(kernel);
  return names[static_cast<int>(dtype)][entry];
}

}  // namespace

LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan) {
  LinkRequest request{{LinkFamily::filter2d, params.dtype, plan.which == Filter2dKernel::staged},
                      entry_name(params.dtype, plan.which, plan.schedule),
                      params.dtype == DType::float64,
                      {},
                      {}};
  request.pre = linked_slot(params.pre, params.pre_operands, word_elements(params.dtype), 1);
  const int columns = takes_strips(plan.which) ? word_elements(params.dtype) : filter2d_columns(params.dtype);
  const int rows = plan.which == Filter2dKernel::aligned5 ? 1 : kChainRows;
  request.post = linked_slot(params.post, params.post_operands, columns, rows);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
