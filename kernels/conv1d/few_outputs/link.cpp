#include "kernels/conv1d/link.h"
#include "kernels/conv1d/few_outputs/policy.h"
#include "kernels/linking/entry_names.h"

namespace sluice {

LinkRequest few_outputs_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const NameTable entries("sluice_conv1d_few_outputs", {{"channels", "positions"}, {"16", "32"}, dtype_names()});
  static const NameTable modules("conv1d_few_outputs", {dtype_names()});
  const FewOutputsPlan& own = plan.few_outputs;
  const DType dtype = params.input.dtype;
  LinkRequest request{.module = modules(dtype), .kernel = entries(own.by_positions, own.columns > kFewColumns, dtype)};
  request.pre = chain_call(params.pre, params.pre_operands, kFewOutputsPreWidth, 1);
  request.post = chain_call(params.post, params.post_operands, kFewOutputsPostWidth, 1);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  // A missing bias must not change the link key: use the input's dtype.
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.exists() ? params.bias.dtype : dtype;
  return request;
}

}  // namespace sluice
