#ifdef SLUICE_CUDA_LIBRARY

#include "ops/convolution/forms.h"

#include "kernels/conv1d/link.h"

namespace sluice {

ConvolutionForms choose_forms(const char* op, const Conv1dParams& params, const Conv1dPlan& plan,
                              const DeviceScope& device, long long elements, Action action) {
  ConvolutionForms forms;
  // With split-K, the chain is in the pass that adds the sums.
  if (plan.dense.splits == 1) forms.own = choose_form(op, link_request(params, plan), device, elements, action);
  if (plan.dense.applies_pre_first)
    forms.conversion = choose_form(op, to_channels_last_link_request(params), device, elements, action);
  return forms;
}

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
