// Convolutions by torch's kernels, and the passes of their chains.
#pragma once

#include "ops/convolution/convolution.h"

namespace sluice {

// The chain of the pass after aten's convolution: `post`, on CUDA preceded by the bias. cuDNN has no bias, so aten
// would add it in a pass of its own. Must not outlive the convolution.
class ChainAfterAten {
 public:
  explicit ChainAfterAten(const Convolution& convolution);
  ChainAfterAten(const ChainAfterAten&) = delete;
  ChainAfterAten& operator=(const ChainAfterAten&) = delete;

  const Chain& chain() const { return with_bias_.has_value() ? *with_bias_ : convolution_.post; }
  bool adds_bias() const { return with_bias_.has_value(); }

 private:
  const Convolution& convolution_;
  std::optional<ChannelOperand> bias_ = std::nullopt;
  std::optional<Chain> with_bias_ = std::nullopt;
};

// The pass of `pre` and aten's convolution, without the pass after it.
Tensor convolve_with_aten(const Convolution& convolution, const ChainAfterAten& after);

// Links, or explains, the passes before and after aten's convolution into `result`; returns why they are not linked.
std::string prepare_passes(const Convolution& convolution, const TensorView& result, const CallMode& mode);

}  // namespace sluice
