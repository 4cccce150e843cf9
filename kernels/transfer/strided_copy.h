// A chunk of a host tensor, of any strides, and its packed copy on a device, as bytes.
//
//   host     |-span-|......|-span-|......|-span-|    rows of `span` bytes, `stride` apart in each outer dimension
//   packed   |-span-|-span-|-span-|                  the same rows contiguous: what a slot or a ring buffer holds
//                ^begin         ^end                 a packet: any range of the packed bytes, which may split rows
#pragma once

#include <cstdint>

namespace sluice::transfer {

struct StridedCopy {
  static constexpr int kMaxRank = 16;

  char* host = nullptr;
  char* packed = nullptr;
  std::int64_t span = 0;  // bytes that are contiguous on both sides
  int rank = 0;           // dimensions outside a span, slowest first
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};  // bytes on the host

  std::int64_t rows() const;
  std::int64_t bytes() const { return span * rows(); }
};

// `sizes` and the host's `strides` (bytes) are in the order in which the packed side is C-contiguous. Dimensions with a
// common stride are merged, so a contiguous tensor is one span. `rank` is at most kMaxRank.
StridedCopy make_copy(char* host, char* packed, std::int64_t itemsize, int rank, const std::int64_t* sizes,
                      const std::int64_t* strides);

// Copies bytes [begin, end) of the packed order from the host to `packed`, which points to byte `begin`, or back.
void gather(const StridedCopy& copy, std::int64_t begin, std::int64_t end, char* packed);
void scatter(const StridedCopy& copy, std::int64_t begin, std::int64_t end, const char* packed);

}  // namespace sluice::transfer
