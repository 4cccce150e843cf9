// Strided tensors as few dimensions as possible: dimensions of extent 1 dropped, the others ordered by
// the first tensor's strides, neighbours that every tensor walks in one step merged.
#pragma once

#include <vector>

namespace sluice {

inline constexpr int kMaxDims = 12;  // after merging

// Dimension 0 is the innermost. strides[t][d] is tensor t's, in elements.
struct Geometry {
  int rank = 0;  // 1 for a single element too; 0 only where the tensors have more than kMaxDims dimensions
  long long sizes[kMaxDims] = {};
  std::vector<std::vector<long long>> strides;
};

// `sizes` are outermost first, as torch has them, and none is 0; `strides[t]` likewise, one list a tensor.
Geometry merge_dimensions(const std::vector<long long>& sizes, const std::vector<std::vector<long long>>& strides);

}  // namespace sluice
