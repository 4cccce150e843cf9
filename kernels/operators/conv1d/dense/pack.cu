// Packs the weight for the tensor cores (pack.h), at every call whose caller did not pack it.
//
// A block takes all taps of some rows of a k-block, a thread one word after another:
//
//   thread      0 .. 7             8 .. 15            16 .. 23    ...
//   word        0 .. 7 of row 0    0 .. 7 of row 0    0 .. 7 of row 0, then of row 1
//   of tap      0                  1                  2
//
// A packed row of a tap is contiguous. The elements of a word are `taps` apart in a contiguous weight, whose rows are
// copied to shared memory first; any other weight is read directly.
#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "kernels/operators/conv1d/dense/launch.h"
#include "kernels/operators/conv1d/dense/store_packed.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;
// Rows of a block: kRowsBytes of them, fewer where there would be less than kLeastBlocks blocks. Rows of more than
// kMostRowBytes are read directly.
constexpr int kRowsBytes = 16 * 1024, kLeastBlocks = 264, kMostRowBytes = 48 * 1024;

struct PackArguments : PackParams {
  int rows_of_block, row_bytes;  // `row_bytes`: in shared memory; 0: rows are read directly
  FastDivisor by_taps, by_row_blocks;
};

// Elements are copied as bits.
template <class Bits>
__global__ void __launch_bounds__(kThreads) pack_kernel(const __grid_constant__ PackArguments a) {
  constexpr int kElements = kWordElements<Bits>;
  begin_next();
  extern __shared__ __align__(kWordBytes) char staged[];
  const auto k_block = static_cast<int>(a.by_row_blocks.quotient(blockIdx.x));
  const long long first_row =
      (blockIdx.x - k_block * static_cast<long long>(a.by_row_blocks.divisor)) * a.rows_of_block;
  const int rows = static_cast<int>(min_of<long long>(a.rows_of_block, a.order.rows - first_row));
  const long long first_channel = static_cast<long long>(k_block) * a.order.k_block;
  const int channels = static_cast<int>(min_of<long long>(a.order.k_block, a.input_channels - first_channel));
  const long long* const strides = a.weight.strides;
  const auto* const weight = a.weight.as<const Bits>() + first_row * strides[0] + first_channel * strides[1];
  const int existing = static_cast<int>(min_of<long long>(rows, a.channels - first_row));
  if (a.row_bytes > 0) {
    const int words = channels * a.order.taps / kElements;
    for (int i = threadIdx.x; i < existing * words; i += kThreads) {
      const int row = i / words, word = i - row * words;
      __pipeline_memcpy_async(staged + row * a.row_bytes + word * kWordBytes,
                              weight + row * strides[0] + word * kElements, kWordBytes);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }
  // A power of two, so a thread has the same word of all its rows.
  const int words = a.order.words(), all = rows * a.order.taps;
  for (int i = threadIdx.x / words; i < all; i += kThreads / words) {
    const int row = static_cast<int>(a.by_taps.quotient_of_31_bits(i)), tap = i - row * a.order.taps;
    const PackedWord packed{
        .k_block = k_block, .tap = tap, .row = first_row + row, .word = static_cast<int>(threadIdx.x) % words};
    const int channel = static_cast<int>(packed.input_channel(a.order) - first_channel);
    const int left = row < existing ? channels - channel : 0;
    Bits values[kElements];
    if (a.row_bytes > 0) {
      const auto* const from = reinterpret_cast<const Bits*>(staged + row * a.row_bytes);
#pragma unroll
      for (int j = 0; j < kElements; ++j) values[j] = j < left ? from[(channel + j) * a.order.taps + tap] : 0;
    } else {
      const auto* const from = weight + row * strides[0] + channel * strides[1] + tap * strides[2];
#pragma unroll
      for (int j = 0; j < kElements; ++j) values[j] = j < left ? from[j * strides[1]] : 0;
    }
    store_packed(a.packed, a.order, packed, values);
  }
}

// Rows of whole aligned words in which each channel's taps are contiguous.
bool has_whole_rows(const PackParams& params) {
  const long long* const strides = params.weight.strides;
  const int elements = params.order.word_elements();
  return strides[2] == 1 && strides[1] == params.order.taps && strides[0] % elements == 0 &&
         params.input_channels * params.order.taps % elements == 0 &&
         reinterpret_cast<std::uintptr_t>(params.weight.data) % kWordBytes == 0;
}

}  // namespace

cudaError_t launch_pack(const PackParams& params, cudaStream_t stream) {
  PackArguments a{params};
  const int row_bytes = params.order.row_bytes() * params.order.taps;
  a.row_bytes = has_whole_rows(params) && row_bytes <= kMostRowBytes ? row_bytes : 0;
  const long long rows = params.order.rows * params.order.k_blocks;
  a.rows_of_block =
      static_cast<int>(max_of<long long>(1, min_of<long long>(kRowsBytes / row_bytes, rows / kLeastBlocks)));
  const long long row_blocks = ceil_div<long long>(params.order.rows, a.rows_of_block);
  a.by_taps = FastDivisor(params.order.taps);
  a.by_row_blocks = FastDivisor(row_blocks);
  const bool is_half = params.order.element_bytes == 2;
  return launch_kernel(is_half ? pack_kernel<std::uint16_t> : pack_kernel<std::uint32_t>,
                       row_blocks * params.order.k_blocks, kThreads, a.row_bytes * a.rows_of_block, stream, a);
}

}  // namespace sluice
