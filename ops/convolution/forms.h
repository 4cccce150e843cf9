// The forms of a launch's kernels: of the convolution's own, and of the one that converts its input and applies `pre`.
#pragma once

#include "kernels/conv1d/conv1d.h"
#include "ops/common/link.h"

namespace sluice {

// Whether the plan's own kernel has a chain.
inline bool is_chained(const Conv1dParams& params, const Conv1dPlan& plan) {
  return !params.post.empty() || (!params.pre.empty() && !plan.dense.applies_pre_first);
}

#ifdef SLUICE_CUDA_LIBRARY
struct ConvolutionForms {
  Form own{.reason = kNoChain}, conversion{.reason = kNoChain};

  // Why not all chains are linked, empty where they are.
  std::string why() const {
    if (own.why() == kNoChain) return conversion.why();
    return own.why().empty() && conversion.why() != kNoChain ? conversion.why() : own.why();
  }
};

// Raises and warns as choose_form does.
ConvolutionForms choose_forms(const char* op, const Conv1dParams& params, const Conv1dPlan& plan,
                              const DeviceScope& device, long long elements, Action action);
#endif

}  // namespace sluice
