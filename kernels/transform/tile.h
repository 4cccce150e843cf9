// How much one thread and one block take on.
#pragma once

#include "kernels/common/dtype.h"

namespace sluice {

// 16-byte vectors a thread holds at once. 16 elements of a half type or of float32 at a time kept the
// interpreter's switch cheapest: at bf16 2^28 a four-stage chain took 285 us with 8, 275 with 16, 294 with
// 32 elements a thread (H200, copy 257).
constexpr int transform_vectors(DType dtype) { return dtype == DType::float32 || dtype == DType::float64 ? 4 : 2; }

constexpr int word_elements(DType dtype) { return 16 / static_cast<int>(size_of(dtype)); }

// Small blocks: at 56 registers a thread, nine of 128 fill a multiprocessor better than four of 256.
inline constexpr int kTransformThreads = 128;
inline constexpr int kTransformResidentBlocks = 6;  // of a ring's, at 80 registers a thread

}  // namespace sluice
