#include "kernels/conv1d/link.h"
#include "kernels/conv1d/long_filter/fragment_layout.h"
#include "kernels/linking/entry_names.h"

namespace sluice {

LinkRequest long_filter_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const NameTable entries("sluice_conv1d_long_filter",
                                 {{"few_steps", "many_steps", "channels"}, dtype_names()});  // as LongFilterKernel
  static const NameTable modules("conv1d_long_filter", {dtype_names()});
  const DType dtype = params.input.dtype;
  LinkRequest request{.module = modules(dtype), .kernel = entries(plan.long_filter.which, dtype)};
  request.pre = chain_call(params.pre, params.pre_operands, kVectorOutputs, 1);
  request.post = chain_call(params.post, params.post_operands, kLaneSums, 1);
  set_tensor_dtypes(request, params);
  return request;
}

}  // namespace sluice
