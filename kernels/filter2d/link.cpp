#include <array>
#include <string>

#include "kernels/filter2d/launch.h"
#include "kernels/filter2d/tile.h"

namespace sluice {
namespace {

constexpr const char* kDirectNames[] = {"square3", "square5", "dense", "separable"};  // of Filter2dForm

// The entries of linked.cu: sluice_filter2d_<dtype>_<form, or with a ring the schedule>.
std::string_view entry_name(DType dtype, Filter2dForm form, Schedule schedule) {
  constexpr int kForms = 4;
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

Filter2dForm form_of(const Filter2dParams& params, const Filter2dPlan& plan) {
  if (plan.schedule != Schedule::direct) return Filter2dForm::staged;
  if (params.row_taps != nullptr) return Filter2dForm::separable;
  if (!params.pre.empty() || !is_small_square(params.kernel_height, params.kernel_width)) return Filter2dForm::dense;
  return params.kernel_height == 3 ? Filter2dForm::square3 : Filter2dForm::square5;
}

LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan) {
  const Filter2dForm form = form_of(params, plan);
  LinkRequest request{{LinkFamily::filter2d, params.dtype, form == Filter2dForm::staged},
                      entry_name(params.dtype, form, plan.schedule),
                      params.dtype == DType::float64,
                      {},
                      {}};
  request.pre = linked_slot(params.pre, params.pre_operands, word_elements(params.dtype), 1);
  request.post = linked_slot(params.post, params.post_operands, filter2d_columns(params.dtype), kChainRows);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
