// Strided tensors with as few dimensions as possible: dimensions of extent 1 are dropped, the others ordered by the
// first tensor's strides, and adjacent dimensions merged if every tensor allows it.
#pragma once

#include <vector>

namespace sluice {

inline constexpr int kMaxDims = 12;  // dimensions after merging

// Dimension 0 is the innermost. strides[t][d] is tensor t's, in elements.
struct Geometry {
  int rank = 0;  // dimensions, at least 1; 0 if the tensors have more than kMaxDims
  long long sizes[kMaxDims] = {};
  std::vector<std::vector<long long>> strides;
};

// `sizes` are outermost first, as in torch, and none is 0; `strides[t]` likewise, one list per tensor.
Geometry merge_dimensions(const std::vector<long long>& sizes, const std::vector<std::vector<long long>>& strides);

}  // namespace sluice
