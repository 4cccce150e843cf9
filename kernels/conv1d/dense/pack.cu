// The weight into the order of the tensor cores (pack.h), at every call whose caller did not do it ahead.
//
// A block takes all taps of some rows of a chunk, a thread one piece after another:
//
//   thread      0 .. 7             8 .. 15            16 .. 23    ...
//   piece       0 .. 7 of row 0    0 .. 7 of row 0    0 .. 7 of row 0, then of row 1
//   of tap      0                  1                  2
//
// A row of a tap is one run of memory that is written. The eight elements of a piece are `taps` apart in a weight as
// torch has it, whose rows come into shared memory first; of any other weight they are read where they lie.
#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "kernels/common/fast_divide.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/dense/launch.h"

namespace sluice {
namespace {

constexpr int kThreads = 256;
// Rows of a block: as many as take kRowsBytes, fewer where there would be less than kLeastBlocks. A longer row than
// kMostRowBytes is read where it lies.
constexpr int kRowsBytes = 16 * 1024, kLeastBlocks = 264, kMostRowBytes = 48 * 1024;

struct PackArguments : PackParams {
  int rows_of_block, row_bytes;  // the latter in shared memory; 0: rows are read where they lie
  FastDivisor by_taps, by_groups;
};

// Half types are moved as the bits that they are.
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackArguments a) {
  begin_next();
  extern __shared__ __align__(kWordBytes) char staged[];
  const auto chunk = static_cast<int>(a.by_groups.quotient(blockIdx.x));
  const long long first_row = (blockIdx.x - chunk * static_cast<long long>(a.by_groups.divisor)) * a.rows_of_block;
  const int rows = static_cast<int>(min_of<long long>(a.rows_of_block, a.order.rows - first_row));
  const long long first_channel = static_cast<long long>(chunk) * a.order.chunk;
  const int channels = static_cast<int>(min_of<long long>(a.order.chunk, a.input_channels - first_channel));
  const long long* const strides = a.weight.strides;
  const auto* const weight = a.weight.as<const std::uint16_t>() + first_row * strides[0] + first_channel * strides[1];
  const int existing = static_cast<int>(min_of<long long>(rows, a.channels - first_row));
  if (a.row_bytes > 0) {
    const int words = channels * a.order.taps / kPieceElements;
    for (int i = threadIdx.x; i < existing * words; i += kThreads) {
      const int row = i / words, word = i - row * words;
      __pipeline_memcpy_async(staged + row * a.row_bytes + word * kWordBytes,
                              weight + row * strides[0] + word * kPieceElements, kWordBytes);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  // A power of two, so that a thread has the same piece of all its rows.
  const int pieces = a.order.pieces(), all = rows * a.order.taps;
  for (int i = threadIdx.x / pieces; i < all; i += kThreads / pieces) {
    const int row = static_cast<int>(a.by_taps.quotient_of_31_bits(i)), tap = i - row * a.order.taps;
    const PackedPiece piece{
        .chunk = chunk, .tap = tap, .row = first_row + row, .place = static_cast<int>(threadIdx.x) % pieces};
    const int channel = static_cast<int>(piece.input_channel(a.order) - first_channel);
    const int left = row < existing ? channels - channel : 0;
    std::uint16_t values[kPieceElements];
    if (a.row_bytes > 0) {
      const auto* const from = reinterpret_cast<const std::uint16_t*>(staged + row * a.row_bytes);
#pragma unroll
      for (int j = 0; j < kPieceElements; ++j) values[j] = j < left ? from[(channel + j) * a.order.taps + tap] : 0;
    } else {
      const auto* const from = weight + row * strides[0] + channel * strides[1] + tap * strides[2];
#pragma unroll
      for (int j = 0; j < kPieceElements; ++j) values[j] = j < left ? from[j * strides[1]] : 0;
    }
    Word word;
    __builtin_memcpy(&word, values, sizeof(word));
    store_word(static_cast<char*>(a.packed) + piece.index(a.order) * kWordBytes, word);
  }
}

// Rows of whole words, each channel's taps side by side.
bool has_whole_rows(const PackParams& params) {
  const long long* const strides = params.weight.strides;
  return strides[2] == 1 && strides[1] == params.order.taps && strides[0] % kPieceElements == 0 &&
         params.input_channels * params.order.taps % kPieceElements == 0 &&
         reinterpret_cast<std::uintptr_t>(params.weight.data) % kWordBytes == 0;
}

}  // namespace

cudaError_t launch_pack(const PackParams& params, cudaStream_t stream) {
  PackArguments a{params};
  const int row_bytes = params.order.row_bytes() * params.order.taps;
  a.row_bytes = has_whole_rows(params) && row_bytes <= kMostRowBytes ? row_bytes : 0;
  const long long rows = params.order.rows * params.order.chunks;
  a.rows_of_block =
      static_cast<int>(max_of<long long>(1, min_of<long long>(kRowsBytes / row_bytes, rows / kLeastBlocks)));
  const long long groups = ceil_div<long long>(params.order.rows, a.rows_of_block);
  a.by_taps = FastDivisor(params.order.taps);
  a.by_groups = FastDivisor(groups);
  return launch_kernel(pack_kernel, groups * params.order.chunks, kThreads, a.row_bytes * a.rows_of_block, stream, a);
}

}  // namespace sluice
