// Work of a thread and of a block.
#pragma once

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// How a block finds its vectors.
enum class Walk : int {
  flat,     // one dimension, in the same order in input and output: all blocks are equal
  rows,     // long contiguous rows: a block stays within one
  strided,  // anything else: each vector finds its own row
};

// A linked chain holds few registers: one vector a thread and many threads keep the most loads in flight. A block of
// `rows` has to find its own row first.
constexpr int linked_vectors(Walk walk) { return walk == Walk::rows ? 2 : 1; }

// Vectors that an interpreted thread, or one of a ring, holds at once. With 16 elements of a half type or of float32 at
// a time the interpreter's switch was cheapest: at bf16 2^28 a four-stage chain took 285 us with 8, 275 with 16, 294
// with 32 elements a thread (H200, copy 257).
constexpr int transform_vectors(DType dtype) { return dtype == DType::float32 || dtype == DType::float64 ? 4 : 2; }

// Small blocks: at 56 registers a thread, nine of 128 fill an SM better than four of 256.
inline constexpr int kTransformThreads = 128;
inline constexpr int kMostTransformThreads = 192;  // threads of a linked block, if that divides rows more evenly
// Resident blocks of rings, at 80 registers a thread; `producers` are the threads that do not compute.
constexpr int transform_resident_blocks(int producers) { return producers == 0 ? 6 : 5; }

// Rows of at least this many vectors have their own blocks.
inline constexpr int kLongRow = 48;

// Resident blocks per SM of `direct`: as many as the compiler can give without spilling. A spill of four bytes in the
// chain's loop made bf16 2^26 take 333 us instead of 85.
constexpr int transform_direct_blocks(unsigned long element_size, bool tensors) {
  return tensors ? 8 : element_size == 2 ? 10 : 9;
}

// Parameters of the plans, one row per architecture. On an H200 `direct` was the fastest schedule of every size (2^14
// to 2^26 elements: 4.0 to 67 us, and 5.0 to 76 with the best ring), so `auto` uses no other.
struct TransformPolicy {
  int compute_capability;
  int least_row_threads;  // threads of a linked block, up to kMostTransformThreads: whatever divides rows most evenly
};

inline constexpr TransformPolicy kTransformPolicies[] = {
    {.compute_capability = 90, .least_row_threads = 96},
};

}  // namespace sluice
