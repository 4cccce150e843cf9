#ifdef SLUICE_CUDA_LIBRARY

#include "ops/convolution_forms.h"

#include "kernels/conv1d/link.h"

namespace sluice {

ConvolutionForms choose_forms(const char* op, const Conv1dParams& params, const Conv1dPlan& plan,
                              const DeviceScope& device, long long elements, Run run) {
  ConvolutionForms forms;
  // The pass that adds a sum's parts has their chain.
  if (plan.dense.parts == 1) forms.own = choose_form(op, link_request(params, plan), device, elements, run);
  if (plan.dense.lays_pre) forms.lay = choose_form(op, lay_link_request(params), device, elements, run);
  return forms;
}

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
