#include "kernels/transform/link.h"

#include "kernels/linking/entry_names.h"
#include "kernels/transform/policy.h"

namespace sluice {
namespace {

// The entries of linked_*.cu.in: sluice_transform_<dtype>_<walk>_<schedule>. Rings take rows as strided.
std::string_view entry_name(const TransformPlan& plan, DType dtype) {
  static const NameTable entries("sluice_transform",
                                 {dtype_names(), {"flat", "rows", "strided", "whole_rows"}, schedule_names()});
  constexpr int kWholeRows = 3;
  int walk = static_cast<int>(plan.problem.walk);
  if (plan.problem.walk == Walk::rows && plan.schedule != Schedule::direct) walk = static_cast<int>(Walk::strided);
  if (plan.problem.whole_rows && plan.schedule == Schedule::direct) walk = kWholeRows;
  return entries(dtype, walk, plan.schedule);
}

std::string_view module_name(const Plan& plan, DType dtype) {
  static const NameTable modules("transform", {{"direct", "staged"}, dtype_names()});
  return modules(plan.schedule != Schedule::direct, dtype);
}

}  // namespace

LinkRequest link_request(const TransformParams& params, const TransformPlan& plan) {
  const DType dtype = params.input.dtype;
  LinkRequest request{
      .module = module_name(plan, dtype), .kernel = entry_name(plan, dtype), .wide = dtype == DType::float64};
  request.post = chain_call(params.program, params.operands, word_elements(dtype), plan.vectors);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  return request;
}

}  // namespace sluice
