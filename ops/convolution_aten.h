// The part of a convolution that torch's own kernels take, and the passes of its chains around them.
#pragma once

#include "ops/convolution.h"

namespace sluice {

// Why aten takes a depthwise transposed convolution whose phases kernels of ours could take; null where it does not.
const char* faster_by_aten(const Convolution& convolution, const Conv1dParams& whole, const Question& question);

// The input behind a pass of `pre`, rounded to the input's dtype as it would be inside of a kernel.
Tensor input_behind_pre(const Convolution& convolution);

// What the pass behind aten's convolution runs: `post`, on CUDA with the bias before it. cuDNN has no bias, so aten
// adds it in a pass of its own. Does not outlive the convolution.
class ChainBehindAten {
 public:
  explicit ChainBehindAten(const Convolution& convolution);
  ChainBehindAten(const ChainBehindAten&) = delete;
  ChainBehindAten& operator=(const ChainBehindAten&) = delete;

  const Chain& chain() const { return with_bias_.has_value() ? *with_bias_ : convolution_.post; }
  bool adds_bias() const { return with_bias_.has_value(); }

 private:
  const Convolution& convolution_;
  std::optional<ChannelOperand> bias_ = std::nullopt;
  std::optional<Chain> with_bias_ = std::nullopt;
};

// aten's convolution after the pass of `pre`; the chain behind it is still to come.
Tensor convolve_with_aten(const Convolution& convolution, const ChainBehindAten& behind);

// The passes in front of aten's convolution and behind it, into `result`: linked, or why they are not.
std::string prepare_passes(const Convolution& convolution, const TensorView& result, const Question& question);

}  // namespace sluice
