// A chunk of a host tensor, of any strides, and its dense copy on a device, as bytes.
//
//   host     |--run--|......|--run--|......|--run--|    rows of `run` bytes, `stride` apart in each outer dimension
//   dense    |--run--|--run--|--run--|                  the same rows side by side: what a slot or a ring buffer holds
//                ^begin          ^end                   a piece: any range of the dense bytes, rows cut where it ends
#pragma once

#include <cstdint>

namespace sluice::transfer {

struct StridedCopy {
  static constexpr int kMaxRank = 16;

  char* host = nullptr;
  char* dense = nullptr;
  std::int64_t run = 0;  // bytes that lie side by side on both sides
  int rank = 0;          // of the dimensions outside a run, slowest first
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};  // of the host, in bytes

  std::int64_t rows() const;
  std::int64_t bytes() const { return run * rows(); }
};

// `sizes` and the host's `strides` (bytes) in the order in which the dense side is C-contiguous. Dimensions that one
// step walks are merged, so that a dense tensor is one run. `rank` may be up to kMaxRank.
StridedCopy make_copy(char* host, char* dense, std::int64_t itemsize, int rank, const std::int64_t* sizes,
                      const std::int64_t* strides);

// Bytes [begin, end) of the dense order: from the host to `dense`, which points to byte `begin`, or back.
void gather(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* dense);
void scatter(const StridedCopy& copy, std::int64_t begin, std::int64_t end, const char* dense);

}  // namespace sluice::transfer
