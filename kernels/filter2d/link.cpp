#include "kernels/filter2d/link.h"

#include "kernels/filter2d/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {
namespace {

// The entries of linked_*.cu.in: sluice_filter2d_<dtype>_<kernel>, or the schedule instead of the kernel with a ring.
std::string_view entry_name(const Filter2dPlan& plan, DType dtype) {
  static const NameTable staged("sluice_filter2d", {dtype_names(), schedule_names()});
  static const NameTable direct("sluice_filter2d",
                                {dtype_names(), {std::begin(kFilter2dKernelNames), std::end(kFilter2dKernelNames)}});
  return plan.which == Filter2dKernel::staged ? staged(dtype, plan.schedule) : direct(dtype, plan.which);
}

std::string_view module_name(const Filter2dPlan& plan, DType dtype) {
  static const NameTable modules("filter2d", {{"direct", "aligned", "staged"}, dtype_names()});
  const bool strips = takes_strips(plan.which) || takes_unaligned_strips(plan.which);
  return modules(plan.which == Filter2dKernel::staged ? 2 : strips, dtype);
}

}  // namespace

LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan) {
  const DType dtype = params.image.dtype;
  LinkRequest request{
      .module = module_name(plan, dtype), .kernel = entry_name(plan, dtype), .wide = dtype == DType::float64};
  request.pre = chain_call(params.pre, params.pre_operands, word_elements(dtype), 1);
  int columns = filter2d_columns(dtype), rows = kChainRows;
  if (is_sampled(plan.which)) {
    columns = kSampledRows, rows = 1;  // a vector is one column of the result
  } else if (takes_strips(plan.which)) {
    columns = word_elements(dtype);
    if (plan.which == Filter2dKernel::aligned5) rows = 1;
  } else if (takes_unaligned_strips(plan.which)) {
    columns = word_elements(dtype), rows = 1;
  }
  request.post = chain_call(params.post, params.post_operands, columns, rows);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  return request;
}

}  // namespace sluice
