// A dense convolution whose sums are made in parts, each over some of the input channels, and added by the pass of the
// chain behind it: what a plan does where tiles are few and sums are long.
#pragma once

#include "ops/convolution.h"

namespace sluice {

// That the chain's pass can add.
int most_parts(const Convolution& convolution);

class PartSums {
 public:
  // In `memory`, the plan's `sums_bytes`, null where nothing is computed; results lie there as in `result`.
  PartSums(const Convolution& convolution, void* memory, int parts, const TensorView& result);
  PartSums(const PartSums&) = delete;
  PartSums& operator=(const PartSums&) = delete;

  // What the kernel writes: (batch, part and channel, position).
  Operand<3> output() const { return output_; }
  // A pass of the chain over the first part's sums adds the others, the bias, and does what the chain does.
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
