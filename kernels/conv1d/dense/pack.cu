// The weight into the order of the tensor cores (pack.h), at every call whose caller did not do it ahead.
//
// A thread writes one piece, and the threads of a block take all taps of some rows:
//
//   thread      0 .. 7             8 .. 15            16 .. 23    ...
//   piece       0 .. 7 of row 0    0 .. 7 of row 0    0 .. 7 of row 0, then of row 1
//   of tap      0                  1                  2
//
// A row of a tap is one run of memory that is written. The eight loads of a thread are `taps` elements apart in a
// weight as torch has it; what lies between them is for threads of the same block and comes from the L1 cache.
#include <cstdint>

#include "kernels/common/fast_divide.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/dense/launch.h"

namespace sluice {
namespace {

constexpr int kThreads = 256;

struct PackArguments : PackParams {
  FastDivisor by_taps, by_rows;

  __device__ PackedPiece piece(long long thread) const {
    const int pieces = order.pieces();
    const long long row_and_tap = thread / pieces;
    const long long rows = by_taps.quotient(row_and_tap), chunk = by_rows.quotient(rows);
    return {.chunk = static_cast<int>(chunk),
            .tap = static_cast<int>(row_and_tap - rows * order.taps),
            .row = rows - chunk * order.rows,
            .place = static_cast<int>(thread % pieces)};
  }
};

// Half types are moved as the bits that they are.
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackArguments a) {
  const long long thread = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const PackedPiece piece = a.piece(thread);
  if (piece.chunk >= a.order.chunks) return;
  const long long input_channel = piece.input_channel(a.order);
  const long long* const strides = a.weight.strides;
  const auto* const weight =
      a.weight.as<const std::uint16_t>() + piece.row * strides[0] + input_channel * strides[1] + piece.tap * strides[2];
  const long long left = piece.row < a.channels ? a.input_channels - input_channel : 0;
  std::uint16_t values[kPieceElements];
#pragma unroll
  for (int i = 0; i < kPieceElements; ++i) values[i] = i < left ? weight[i * strides[1]] : 0;
  Word word;
  __builtin_memcpy(&word, values, sizeof(word));
  store_word(static_cast<char*>(a.packed) + piece.index(a.order) * kWordBytes, word);
}

}  // namespace

cudaError_t launch_pack(const PackParams& params, cudaStream_t stream) {
  PackArguments a{params};
  a.by_taps = FastDivisor(params.order.taps);
  a.by_rows = FastDivisor(params.order.rows);
  const long long pieces = params.order.elements() / kPieceElements;
  return launch_kernel(pack_kernel, ceil_div<long long>(pieces, kThreads), kThreads, 0, stream, a);
}

}  // namespace sluice
