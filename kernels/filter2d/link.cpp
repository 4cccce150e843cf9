#include <array>
#include <string>

#include "kernels/filter2d/launch.h"
#include "kernels/filter2d/policy.h"

namespace sluice {
namespace {

constexpr const char* kDirectNames[] = {"square3", "square5", "aligned3", "aligned5", "dense", "separable"};  // of Filter2dForm

// The entries of linked.cu: sluice_filter2d_<dtype>_<form, or with a ring the schedule>.
std::string_view entry_name(DType dtype, Filter2dForm form, Schedule schedule) {
  constexpr int kForms = 6;
  static const auto names = [] {
    std::array<std::array<std::string, kForms + kSchedules>, 4> made;
    for (int d = 0; d < 4; ++d) {
      const std::string prefix = std::string("sluice_filter2d_") + name_of(static_cast<DType>(d)) + "_";
      for (int f = 0; f < kForms; ++f) made[d][f] = prefix + kDirectNames[f];
      for (int s = 0; s < kSchedules; ++s) made[d][kForms + s] = prefix + name_of(static_cast<Schedule>(s));
    }
    return made;
  }();
  const int entry = form == Filter2dForm::staged ? kForms + static_cast<int>(schedule) : static_cast<int>(form);
  return names[static_cast<int>(dtype)][entry];
}

}  // namespace

LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan) {
  LinkRequest request{{LinkFamily::filter2d, params.dtype, plan.form == Filter2dForm::staged},
                      entry_name(params.dtype, plan.form, plan.schedule),
                      params.dtype == DType::float64,
                      {},
                      {}};
  request.pre = linked_slot(params.pre, params.pre_operands, word_elements(params.dtype), 1);
  const int columns = is_aligned_form(plan.form) ? word_elements(params.dtype) : filter2d_columns(params.dtype);
  const int rows = plan.form == Filter2dForm::aligned5 ? 1 : kChainRows;
  request.post = linked_slot(params.post, params.post_operands, columns, rows);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
