// Packs the weight of a transposed convolution for the tensor cores (interleave.h), at every call whose caller did not
// pack it.
//
// In a contiguous weight all taps of all output channels of an input channel are one span. A block takes 128 elements
// of it, of each input channel of a k-block:
//
//   shared memory    row: input channel    column: tap of an output channel, of the component range
//   load             a warp takes 32 columns of a row
//   store            a thread takes the rows of a column that are a word; two consecutive words are a sector of memory
#include <cstdint>

#include "kernels/operators/conv1d/dense/store_packed.cuh"
#include "kernels/operators/conv1d/interleaved/launch.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;
// An odd number of banks of half types: the words of a column are in different banks.
template <class Bits>
inline constexpr int kPitch = kColumns + 4 / static_cast<int>(sizeof(Bits));

struct PolyphasePackArguments : PolyphasePackParams {
  int columns;  // columns of all output channels
  FastDivisor by_columns, by_components, by_blocks;
};

struct Column {
  int channel, own;  // `own`: index in the channel's columns
};

__device__ __forceinline__ Column column_at(const PolyphasePackArguments& a, int column) {
  const int channel = static_cast<int>(a.by_columns.quotient_of_31_bits(column));
  return {channel, column - channel * static_cast<int>(a.by_columns.divisor)};
}

// Elements are copied as bits.
template <class Bits>
__global__ void __launch_bounds__(kThreads) pack_polyphase_kernel(const __grid_constant__ PolyphasePackArguments a) {
  constexpr int kElements = kWordElements<Bits>;
  begin_next();
  extern __shared__ __align__(kWordBytes) char memory[];
  auto* const staged = reinterpret_cast<Bits*>(memory);
  const auto k_block = static_cast<int>(a.by_blocks.quotient(blockIdx.x));
  const int first_column =
      static_cast<int>(blockIdx.x - k_block * static_cast<long long>(a.by_blocks.divisor)) * kColumns;
  const long long first_input = static_cast<long long>(k_block) * a.order.k_block;
  const int inputs = static_cast<int>(min_of<long long>(a.order.k_block, a.input_channels - first_input));
  {
    const int own = static_cast<int>(threadIdx.x) % kColumns;
    const Column at = column_at(a, first_column + own);
    const int tap = a.tap(a.by_components, at.own);
    const bool exists = first_column + own < a.columns && at.channel < a.interleave.channels && tap < a.weight_taps;
    const long long* const strides = a.weight.strides;
    const auto* const from = a.weight.as<const Bits>() + at.channel * strides[0] + tap * strides[2];
#pragma unroll 8
    for (int row = static_cast<int>(threadIdx.x) / kColumns; row < a.order.k_block; row += kThreads / kColumns) {
      staged[row * kPitch<Bits> + own] = exists && row < inputs ? from[(first_input + row) * strides[1]] : 0;
    }
  }
  __syncthreads();
  const int all = kColumns * a.order.words();
  for (int i = threadIdx.x; i < all; i += kThreads) {
    const int own = i / 2 % kColumns;
    const Column at = column_at(a, first_column + own);
    if (first_column + own >= a.columns) continue;
    const PackedWord packed =
        a.packed_word(a.by_components, at.channel, at.own, k_block, i / (2 * kColumns) * 2 + i % 2);
    const int row = static_cast<int>(packed.input_channel(a.order) - first_input);
    Bits values[kElements];
#pragma unroll
    for (int j = 0; j < kElements; ++j) values[j] = staged[(row + j) * kPitch<Bits> + own];
    store_packed(a.packed, a.order, packed, values);
  }
}

}  // namespace

cudaError_t launch_pack_polyphase(const PolyphasePackParams& params, cudaStream_t stream) {
  PolyphasePackArguments a{params};
  a.columns = params.channels() * params.columns_of_channel();
  a.by_columns = FastDivisor(params.columns_of_channel());
  a.by_components = FastDivisor(params.interleave.components);
  const long long blocks = ceil_div<long long>(a.columns, kColumns);
  a.by_blocks = FastDivisor(blocks);
  const long long grid = blocks * params.order.k_blocks;
  const auto launch = [&]<class Bits>(Bits) {
    const int bytes = params.order.row_bytes() * kPitch<Bits>;
    return launch_kernel(pack_polyphase_kernel<Bits>, grid, kThreads, bytes, stream, a);
  };
  return params.order.element_bytes == 2 ? launch(std::uint16_t{}) : launch(std::uint32_t{});
}

}  // namespace sluice
