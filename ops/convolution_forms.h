// Which forms of its kernels a launch of a convolution runs: of its own, and of the one that lays its input with `pre`.
#pragma once

#include "kernels/conv1d/conv1d.h"
#include "ops/common/link.h"

namespace sluice {

// Whether the plan's own kernel has a chain.
inline bool is_chained(const Conv1dParams& params, const Conv1dPlan& plan) {
  return !params.post.empty() || (!params.pre.empty() && !plan.dense.lays_pre);
}

#ifdef SLUICE_CUDA_LIBRARY
struct ConvolutionForms {
  Form own{.reason = kNoChain}, lay{.reason = kNoChain};

  // Why not all chains are linked, empty where they are.
  std::string why() const {
    if (own.why() == kNoChain) return lay.why();
    return own.why().empty() && lay.why() != kNoChain ? lay.why() : own.why();
  }
};

// Raises and warns as choose_form does.
ConvolutionForms choose_forms(const char* op, const Conv1dParams& params, const Conv1dPlan& plan,
                              const DeviceScope& device, long long elements, Run run);
#endif

}  // namespace sluice
