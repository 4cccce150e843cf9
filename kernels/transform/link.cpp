#include "kernels/transform/link.h"

#include "kernels/linking/entry_names.h"
#include "kernels/transform/policy.h"

namespace sluice {
namespace {

// The entries of linked_*.cu.in: sluice_transform_<dtype>_<walk>_<schedule>.
std::string_view entry_name(const Plan& plan, DType dtype, Walk walk) {
  static const NameTable entries("sluice_transform", {dtype_names(), {"flat", "rows", "strided"}, schedule_names()});
  return entries(dtype, walk, plan.schedule);
}

std::string_view module_name(const Plan& plan, DType dtype) {
  static const NameTable modules("transform", {{"direct", "staged"}, dtype_names()});
  return modules(plan.schedule != Schedule::direct, dtype);
}

}  // namespace

// Rings take rows as strided ones.
LinkRequest link_request(const TransformParams& params, const TransformPlan& plan) {
  const DType dtype = params.input.dtype;
  const bool direct = plan.schedule == Schedule::direct;
  const Walk walk = plan.problem.walk;
  const Walk entry = walk == Walk::rows && !direct ? Walk::strided : walk;
  LinkRequest request{
      .module = module_name(plan, dtype), .kernel = entry_name(plan, dtype, entry), .wide = dtype == DType::float64};
  request.post = linked_slot(params.program, params.operands, word_elements(dtype),
                             direct ? linked_vectors(walk) : transform_vectors(dtype));
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  return request;
}

}  // namespace sluice
