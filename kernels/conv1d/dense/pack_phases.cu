// The weight of a transposed convolution into the order of the tensor cores (interleave.h), at every call.
//
// As torch has it, all taps of all output channels of an input channel are one run of memory, and the next input
// channel is a whole one further. A block takes 128 of them of each input channel of a chunk:
//
//   shared memory    row: input channel    column: tap of an output channel, of those that its phases have
//   load             a warp takes 32 columns of a row
//   store            a thread takes eight rows of a column, a piece; two neighbouring pieces are a sector of memory
#include <cstdint>

#include "kernels/common/fast_divide.h"
#include "kernels/common/launch.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/conv1d/dense/launch.h"

namespace sluice {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 128;
constexpr int kPitch = kColumns + 2;  // an odd number of banks, so that the pieces of a column lie in different ones

struct PhasePackArguments : PhasePackParams {
  int columns;  // of all output channels
  FastDivisor by_columns, by_phases, by_blocks;
};

struct Column {
  int channel, own;  // of the channel's
};

__device__ __forceinline__ Column column_at(const PhasePackArguments& a, int column) {
  const int channel = static_cast<int>(a.by_columns.quotient_of_31_bits(column));
  return {channel, column - channel * static_cast<int>(a.by_columns.divisor)};
}

// Half types are moved as the bits that they are.
__global__ void __launch_bounds__(kThreads) pack_phases_kernel(const __grid_constant__ PhasePackArguments a) {
  begin_next();
  extern __shared__ __align__(kWordBytes) char memory[];
  auto* const staged = reinterpret_cast<std::uint16_t*>(memory);
  const auto chunk = static_cast<int>(a.by_blocks.quotient(blockIdx.x));
  const int first_column =
      static_cast<int>(blockIdx.x - chunk * static_cast<long long>(a.by_blocks.divisor)) * kColumns;
  const long long first_input = static_cast<long long>(chunk) * a.order.chunk;
  const int inputs = static_cast<int>(min_of<long long>(a.order.chunk, a.input_channels - first_input));
  {
    const int own = static_cast<int>(threadIdx.x) % kColumns;
    const Column at = column_at(a, first_column + own);
    const int tap = a.tap(a.by_phases, at.own);
    const bool exists = first_column + own < a.columns && at.channel < a.interleave.channels && tap < a.weight_taps;
    const long long* const strides = a.weight.strides;
    const auto* const from = a.weight.as<const std::uint16_t>() + at.channel * strides[0] + tap * strides[2];
#pragma unroll 8
    for (int row = static_cast<int>(threadIdx.x) / kColumns; row < a.order.chunk; row += kThreads / kColumns) {
      staged[row * kPitch + own] = exists && row < inputs ? from[(first_input + row) * strides[1]] : 0;
    }
  }
  __syncthreads();
  const int all = kColumns * a.order.pieces();
  for (int i = threadIdx.x; i < all; i += kThreads) {
    const int own = i / 2 % kColumns;
    const Column at = column_at(a, first_column + own);
    if (first_column + own >= a.columns) continue;
    const PackedPiece piece = a.piece(a.by_phases, at.channel, at.own, chunk, i / (2 * kColumns) * 2 + i % 2);
    const int row = static_cast<int>(piece.input_channel(a.order) - first_input);
    std::uint16_t values[kPieceElements];
#pragma unroll
    for (int j = 0; j < kPieceElements; ++j) values[j] = staged[(row + j) * kPitch + own];
    Word word;
    __builtin_memcpy(&word, values, sizeof(word));
    store_word(static_cast<char*>(a.packed) + piece.index(a.order) * kWordBytes, word);
  }
}

}  // namespace

cudaError_t launch_pack_phases(const PhasePackParams& params, cudaStream_t stream) {
  PhasePackArguments a{params};
  a.columns = params.channels() * params.columns_of_channel();
  a.by_columns = FastDivisor(params.columns_of_channel());
  a.by_phases = FastDivisor(params.interleave.phases);
  const long long blocks = ceil_div<long long>(a.columns, kColumns);
  a.by_blocks = FastDivisor(blocks);
  return launch_kernel(pack_phases_kernel, blocks * params.order.chunks, kThreads, params.order.row_bytes() * kPitch,
                       stream, a);
}

}  // namespace sluice
