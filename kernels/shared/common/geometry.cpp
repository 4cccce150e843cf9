#include "kernels/shared/common/geometry.h"

#include <algorithm>
#include <numeric>

namespace sluice {

Geometry merge_dimensions(const std::vector<long long>& sizes, const std::vector<std::vector<long long>>& strides) {
  std::vector<int> order;
  for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
    if (sizes[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return strides[0][a] < strides[0][b]; });

  Geometry merged;
  merged.strides.resize(strides.size());
  if (order.empty()) {
    merged.rank = 1;
    merged.sizes[0] = 1;
    for (auto& stride : merged.strides) stride.push_back(1);
    return merged;
  }
  for (int d : order) {
    const int last = merged.rank - 1;
    bool joins = last >= 0;
    for (std::size_t t = 0; joins && t < strides.size(); ++t) {
      joins = strides[t][d] == merged.strides[t][last] * merged.sizes[last];
    }
    if (joins) {
      merged.sizes[last] *= sizes[d];
      continue;
    }
    if (merged.rank == kMaxDims) {
      merged.rank = 0;
      return merged;
    }
    merged.sizes[merged.rank++] = sizes[d];
    for (std::size_t t = 0; t < strides.size(); ++t) merged.strides[t].push_back(strides[t][d]);
  }
  return merged;
}

}  // namespace sluice
