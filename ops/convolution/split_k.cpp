#include "ops/convolution/split_k.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr DType kSums = DType::float32;

// Elements from one split's sums to the next one's.
int64_t split_stride(const Convolution& c, bool channels_last) {
  return channels_last ? c.sizes[1] : c.sizes[1] * c.sizes[2];
}

std::vector<int64_t> strides_of(const Convolution& c, int splits, bool channels_last) {
  const int64_t channels = splits * c.sizes[1], batch = channels * c.sizes[2];
  return channels_last ? std::vector<int64_t>{batch, 1, channels} : std::vector<int64_t>{batch, c.sizes[2], 1};
}

}  // namespace

int most_splits(const Convolution& c) {
  if (c.unsplit) return 1;
  const int left = std::min(kMaxOperands - static_cast<int>(c.post.operands.size()), kMaxStages - c.post.program.count);
  return std::max(1, 1 + left - (c.bias.has_value() ? 1 : 0));
}

SplitSums::SplitSums(const Convolution& c, int64_t offset, int splits, const TensorView& result)
    : strides_(strides_of(c, splits, result.strides[1] == 1)),
      first_(result, c.sizes, strides_, kSums),
      chain_(c.post) {
  first_.data = reinterpret_cast<void*>(offset);
  output_ = operand_of<3>(first_);
  if (c.bias.has_value()) chain_.prepend_addition(bias_.emplace(*c.bias).view());
  const int64_t step = split_stride(c, result.strides[1] == 1) * static_cast<int64_t>(size_of(kSums));
  for (int split = splits - 1; split > 0; --split) {  // so that they are added from the second on
    TensorView sums = first_;
    sums.data = reinterpret_cast<void*>(offset + split * step);
    chain_.prepend_addition(sums);
  }
}

}  // namespace sluice
