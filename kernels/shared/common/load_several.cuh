// Several elements of a dtype that is known at run time only, all in flight together: a loop that loads and uses one
// after the other waits for each.
#pragma once

#include "kernels/shared/common/vector.cuh"

namespace sluice {

// For index_of: no element, so a zero. Others may be negative.
inline constexpr long long kNoElement = -(1LL << 62);

// Element number index_of(i) of `data`.
template <class T, int Count, class IndexOf>
__device__ __forceinline__ void load_several(const void* data, DType dtype, const IndexOf& index_of,
                                             T (&values)[Count]) {
  with_element_type(dtype, [&](auto* tag) {
    using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      const long long index = index_of(i);
      values[i] = index != kNoElement ? convert<T>(static_cast<const Element*>(data)[index]) : T(0);
    }
  });
}

}  // namespace sluice
