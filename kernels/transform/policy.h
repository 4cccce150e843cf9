// How much one thread and one block take on.
#pragma once

#include "kernels/common/dtype.h"

namespace sluice {

// How a block finds its vectors.
enum class Walk : int {
  flat,     // one dimension, walked alike by the input and the output: every block the same
  rows,     // long rows of neighbours: a block stays within one
  strided,  // anything else: each vector finds its own row
};

// A linked chain holds few registers: one vector a thread and many threads keep the most loads in flight.
constexpr int linked_vectors(Walk walk) { return walk == Walk::rows ? 2 : 1; }  // rows: a block has to find its own first

// Vectors that an interpreted thread, or one of a ring, holds at once. 16 elements of a half type or of float32 at a
// time kept the interpreter's switch cheapest: at bf16 2^28 a four-stage chain took 285 us with 8, 275 with 16, 294
// with 32 elements a thread (H200, copy 257).
constexpr int transform_vectors(DType dtype) { return dtype == DType::float32 || dtype == DType::float64 ? 4 : 2; }
template <class Element>
inline constexpr int kTransformGroups = sizeof(Element) == 2 ? 2 : 4;

// Small blocks: at 56 registers a thread, nine of 128 fill a multiprocessor better than four of 256.
inline constexpr int kTransformThreads = 128;
inline constexpr int kMostTransformThreads = 192;  // of a linked block, where that cuts rows more evenly
// Of a ring's blocks, at 80 registers a thread; `producers` are its threads that do not compute.
constexpr int transform_resident_blocks(int producers) { return producers == 0 ? 6 : 5; }

// Rows of at least so many vectors are worth blocks of their own.
inline constexpr int kLongRow = 48;

}  // namespace sluice
