// Split-K for dense convolutions of few tiles and long sums: each split sums over some of the input channels, and the
// pass of `post` adds the splits.
#pragma once

#include "ops/convolution/convolution.h"

namespace sluice {

// The maximum that the chain's pass can add.
int most_splits(const Convolution& convolution);

class SplitSums {
 public:
  // `offset`: where the plan's `sums_bytes` are in the workspace. The sums have the layout of `result`.
  SplitSums(const Convolution& convolution, int64_t offset, int splits, const TensorView& result);
  SplitSums(const SplitSums&) = delete;
  SplitSums& operator=(const SplitSums&) = delete;

  // The kernel's output: (batch, split and channel, position).
  Operand<3> output() const { return output_; }
  // A pass of chain() over the first split's sums adds the bias and the others, which are the chain's last operands,
  // and then applies the convolution's chain.
  const TensorView& first() const { return first_; }
  const Chain& chain() const { return chain_; }

 private:
  std::vector<int64_t> strides_;
  std::optional<ChannelOperand> bias_;
  TensorView first_;
  Operand<3> output_;
  Chain chain_;
};

}  // namespace sluice
