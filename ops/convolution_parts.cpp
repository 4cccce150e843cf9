#include "ops/convolution_parts.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr DType kSums = DType::float32;

// From one part's sums to the next one's.
int64_t part_stride(const Convolution& c, bool channels_last) {
  return channels_last ? c.sizes[1] : c.sizes[1] * c.sizes[2];
}

std::vector<int64_t> strides_of(const Convolution& c, int parts, bool channels_last) {
  const int64_t channels = parts * c.sizes[1], batch = channels * c.sizes[2];
  return channels_last ? std::vector<int64_t>{batch, 1, channels} : std::vector<int64_t>{batch, c.sizes[2], 1};
}

}  // namespace

int most_parts(const Convolution& c) {
  if (c.in_one_part) return 1;
  const int room = std::min(kMaxOperands - static_cast<int>(c.post.operands.size()), kMaxStages - c.post.program.count);
  return std::max(1, 1 + room - (c.bias.has_value() ? 1 : 0));
}

PartSums::PartSums(const Convolution& c, void* memory, int parts, const TensorView& result)
    : strides_(strides_of(c, parts, result.strides[1] == 1)), first_(result, c.sizes, strides_, kSums), chain_(c.post) {
  first_.data = memory;
  output_ = operand_of<3>(first_);
  if (c.bias.has_value()) chain_.prepend_addition(bias_.emplace(*c.bias).view());
  const int64_t step = part_stride(c, result.strides[1] == 1) * static_cast<int64_t>(size_of(kSums));
  for (int part = parts - 1; part > 0; --part) {  // added from the second on
    TensorView sums = first_;
    sums.data = static_cast<char*>(memory) + part * step;
    chain_.prepend_addition(sums);
  }
}

}  // namespace sluice
