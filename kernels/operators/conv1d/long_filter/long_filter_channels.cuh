// The same products for channels-last tensors: words of 8 channels are transposed in shared memory, so that a channel's
// positions are contiguous, and transposed back after the products.
//
//   stage, a column of words a warp          transposed, a warp's 8 channels
//
//   position 0 | c0 .. c7 |                  c0 | position 0, 1, 2, ... |   --mma, as of a row--> sums, `post`
//   position 1 | c0 .. c7 |  --ldmatrix.trans-->  c1 | position 0, 1, 2, ... |                        |
//     ...                                    ...        ^------------------------ rounded pairs, in place
//
// and back into the column, which no other warp reads; then the block stores whole sectors of positions. A block keeps
// its channels if the grid is a multiple of the channel blocks.
#pragma once

#include "kernels/operators/conv1d/long_filter/fetch.cuh"
#include "kernels/operators/conv1d/long_filter/multiply.cuh"
#include "kernels/shared/mma/matrices.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// A block's outputs: kBlockWords words of channels, by up to kOutputsPerWarp positions.
template <class Element>
struct ChannelSegment {
  int batch, channel, begin;

  __device__ __forceinline__ ChannelSegment(const LongFilterArguments<Element>& a, int index) {
    const int upper = static_cast<int>(a.by_across.quotient_of_31_bits(index));
    channel = (index - upper * static_cast<int>(a.channel_blocks)) * (kBlockWords * kVectorOutputs);
    batch = static_cast<int>(a.by_segments.quotient_of_31_bits(upper));
    begin = (upper - batch * static_cast<int>(a.segments_per_row)) * kOutputsPerWarp;
  }
  __device__ __forceinline__ int outputs(const LongFilterArguments<Element>& a) const {
    return min_of(static_cast<int>(a.output_length) - begin, kOutputsPerWarp);
  }
  __device__ __forceinline__ int tiles(const LongFilterArguments<Element>& a) const {
    return outputs(a) > kTileOutputs ? kTilesPerWarp : 1;
  }
  // Input positions that its tiles read, including those multiplied by zero taps.
  __device__ __forceinline__ int positions(const LongFilterArguments<Element>& a) const {
    return window_positions(tiles(a) * kTileOutputs, a.steps);
  }
};

// A thread's words of a stage: one of the block's words of channels at every 32nd position.
struct StageColumn {
  int first;              // position
  int channel, existing;  // the word's first channel, and how many of its channels exist
  std::uint32_t words;    // address of the word of position 0

  template <class Element>
  __device__ __forceinline__ StageColumn(const LongFilterArguments<Element>& a, const ChannelSegment<Element>& segment,
                                         std::uint32_t stage) {
    const int word = static_cast<int>(threadIdx.x) % kBlockWords;
    first = static_cast<int>(threadIdx.x) / kBlockWords;
    channel = segment.channel + word * kVectorOutputs;
    existing = min_of(static_cast<int>(a.channels) - channel, kVectorOutputs);
    words = stage + word * word_column_bytes(a.stage_positions);
  }
};
inline constexpr int kColumnStep = kLongFilterThreads / kBlockWords;

// Copies words whose channels all exist and are aligned, and gathers others by elements.
template <class Element>
__device__ __forceinline__ void fetch_columns(const LongFilterArguments<Element>& a,
                                              const ChannelSegment<Element>& segment, std::uint32_t stage) {
  const StageColumn own(a, segment, stage);
  const int positions = segment.positions(a), start = segment.begin - static_cast<int>(a.padding);
  const Element* const input = a.input.template as<const Element>() + segment.batch * a.input.strides[0] + own.channel;
  const bool is_copied = a.whole_words && own.existing == kVectorOutputs;
  std::uint32_t to = own.words + own.first * kWordBytes;
  if (is_copied && start >= 0 && start + positions <= static_cast<int>(a.length)) {
    const Element* from = input + (start + own.first) * a.input.strides[2];
    const long long step = kColumnStep * a.input.strides[2];
#pragma unroll 2
    for (int i = own.first; i < positions; i += kColumnStep, from += step, to += kColumnStep * kWordBytes) {
      copy_word(to, from);
    }
    return;
  }
#pragma unroll 2
  for (int i = own.first; i < positions; i += kColumnStep, to += kColumnStep * kWordBytes) {
    const int position = start + i;
    const bool is_inside = static_cast<unsigned>(position) < static_cast<unsigned>(a.length);
    const Element* const from = input + position * a.input.strides[2];
    if (is_copied && is_inside) {
      copy_word(to, from);
    } else if (is_inside) {
      store_shared_word(
          to, gather_elements<Element>([&](int e) { return e < own.existing ? from[e] : convert<Element>(0.0f); }));
    } else {
      store_shared_word(to, a.history.exists() ? gather_word(a, segment.batch, own.channel, position, 1, 0) : Word{});
    }
  }
}

// Applies `pre` to the words that the thread fetched.
template <class Pre, class Element>
__device__ __forceinline__ void prepare_columns(const LongFilterArguments<Element>& a,
                                                const ChannelSegment<Element>& segment, std::uint32_t stage) {
  const StageColumn own(a, segment, stage);
  const int positions = segment.positions(a);
  std::uint32_t at = own.words + own.first * kWordBytes;
#pragma unroll 1
  for (int i = own.first; i < positions; i += kColumnStep, at += kColumnStep * kWordBytes) {
    const int position = segment.begin - static_cast<int>(a.padding) + i;
    if (static_cast<unsigned>(position) >= static_cast<unsigned>(a.length)) continue;
    store_shared_word(at, apply_pre<Pre>(a, load_shared_word(at), segment.batch, own.channel, position, 1, 0));
  }
}

__device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t lane) {
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(lane) : "memory");
}

// Transposes a warp's column of words into rows of channels.
__device__ __forceinline__ void transpose_columns(std::uint32_t column, std::uint32_t transposed, int stage_positions,
                                                  int positions, int lane) {
  std::uint32_t from = column + transposed_load_byte(lane),
                to = transposed + transposed_store_byte(lane, stage_positions);
#pragma unroll 2
  for (int i = 0; i < positions; i += 16, from += 16 * kWordBytes, to += 16 * 2) {
    std::uint32_t matrices[2];
    load_transposed(from, matrices);
#pragma unroll
    for (int m = 0; m < 2; ++m) store_shared(to + m * 8 * 2, matrices[m]);
  }
}

// Transposes them back.
__device__ __forceinline__ void transpose_rows(std::uint32_t transposed, std::uint32_t column, int stage_positions,
                                               int positions, int lane) {
  std::uint32_t from = transposed + word_load_byte(lane, stage_positions), to = column + word_store_byte(lane);
#pragma unroll 2
  for (int i = 0; i < positions; i += 32, from += 32 * 2, to += 32 * kWordBytes) {
    std::uint32_t matrices[4];
    load_transposed(from, matrices);
#pragma unroll
    for (int m = 0; m < 4; ++m) store_shared(to + m * 8 * kWordBytes, matrices[m]);
  }
}

// Stores one channel's result to its transposed row, whose input is no longer needed. The row holds `tiles` tiles.
template <class Post, class Element>
__device__ __forceinline__ void finish_channel(const LongFilterArguments<Element>& a, std::uint32_t row, int tiles,
                                               int lane, const float (&sums)[kTilesPerWarp][4]) {
  float values[kLaneSums];
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) values[i] = sums[i / 4][i % 4];
  run_chain<Post, kVectorOutputs, 1>(a.post, [](const long long*, int) { return Place{}; }, values);
  std::uint32_t pairs[kQuartersPerWarp];
  pack<Element, kLaneSums>(values, pairs);
  __syncwarp();
#pragma unroll
  for (int quarter = 0; quarter < kQuartersPerWarp; ++quarter) {
    if (quarter / 2 >= tiles) break;
    store_shared(row + lane * 4 + quarter * kOutputsPerQuarter * 2, pairs[quarter]);
  }
}

template <class Post, class Element>
__device__ __noinline__ void finish_channel_within_windows(const LongFilterArguments<Element>& a, int channel,
                                                           std::uint32_t row, int tiles, float bias) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sums[kTilesPerWarp][4];
  multiply_within_windows(a, channel, 0, row, tiles, bias, lane, sums);
  finish_channel<Post>(a, row, tiles, lane, sums);
}

template <class Element>
__device__ __forceinline__ void store_columns(const LongFilterArguments<Element>& a,
                                              const ChannelSegment<Element>& segment, std::uint32_t stage) {
  const StageColumn own(a, segment, stage);
  const int outputs = segment.outputs(a);
  Element* const output = a.output.template as<Element>() + segment.batch * a.output.strides[0] + own.channel;
  Element* to = output + (segment.begin + own.first) * a.output.strides[2];
  const long long step = kColumnStep * a.output.strides[2];
  if (own.existing == kVectorOutputs && is_word_aligned(to) && a.output.strides[2] % kVectorOutputs == 0) {
#pragma unroll 4
    for (int i = own.first; i < outputs; i += kColumnStep, to += step) {
      store_global_word(to, load_shared_word(own.words + i * kWordBytes));
    }
    return;
  }
#pragma unroll 1
  for (int i = own.first; i < outputs; i += kColumnStep, to += step) {
    const Word word = load_shared_word(own.words + i * kWordBytes);
    Element elements[kVectorOutputs];
    __builtin_memcpy(elements, &word, sizeof(word));
#pragma unroll
    for (int e = 0; e < kVectorOutputs; ++e) {
      if (e < own.existing) to[e] = elements[e];
    }
  }
}

template <class Chains, class Element>
__device__ __forceinline__ void long_filter_channels(const LongFilterArguments<Element>& a) {
  using Pre = typename Chains::Pre;
  using Post = typename Chains::Post;
  extern __shared__ Word shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row_bytes = transposed_row_bytes(a.stage_positions), one_taps = 2 * tap_copy_bytes(a.steps);
  const auto ring = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const std::uint32_t ring_end = ring + a.depth * a.stage_bytes();
  const std::uint32_t transposed = ring_end + warp * transposed_bytes(a.stage_positions, a.steps);
  const std::uint32_t taps = transposed + kVectorOutputs * row_bytes;
  const int end = static_cast<int>(a.segments), grid = static_cast<int>(gridDim.x);

  int ahead = static_cast<int>(blockIdx.x), own_channel = -1;
  std::uint32_t ahead_stage = ring, stage = ring;
  float biases = 0.0f;  // lane c has channel c's
  int under_way = 0;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x); index < end; index += grid) {
    __syncthreads();  // the previous segment is no longer read: its stage is filled next
#pragma unroll 1
    for (; under_way < a.depth; ++under_way, ahead += grid) {
      if (ahead < end) fetch_columns(a, ChannelSegment<Element>(a, ahead), ahead_stage);
      commit_copies();
      ahead_stage += a.stage_bytes();
      if (ahead_stage == ring_end) ahead_stage = ring;
    }
    --under_way;
    const ChannelSegment<Element> segment(a, index);
    const int channel = segment.channel + warp * kVectorOutputs;
    const int existing = min_of(static_cast<int>(a.channels) - channel, kVectorOutputs);
    if (channel != own_channel) {
      own_channel = channel;
      const Team<false> alone{.lane = lane, .first_warp = 0, .all_warps = 1};
#pragma unroll 1
      for (int c = 0; c < existing; ++c) fetch_taps(a, taps_of(a, channel + c), taps + c * one_taps, alone);
      biases = lane < existing ? a.bias_of(channel + lane) : 0.0f;
    }
    wait_for_copies(a.depth - 1);
    if (!Pre{a.pre}.empty()) prepare_columns<Pre>(a, segment, stage);
    __syncthreads();  // all threads' copies of the segment have arrived

    const int tiles = segment.tiles(a);
    const std::uint32_t column = stage + warp * word_column_bytes(a.stage_positions);
    transpose_columns(column, transposed, a.stage_positions, segment.positions(a), lane);
    __syncwarp();
    std::uint32_t row = transposed, pairs = taps + tap_pair_byte(lane, 0, a.steps);
#pragma unroll 1
    for (int c = 0; c < existing; ++c, row += row_bytes, pairs += one_taps) {
      const float bias = __shfl_sync(0xffffffffu, biases, c);
      float sums[kTilesPerWarp][4];
#pragma unroll
      for (int i = 0; i < kLaneSums; ++i) sums[i / 4][i % 4] = bias;
      multiply_tiles<Element>(row + tile_position(lane) * static_cast<int>(sizeof(Element)), pairs, a.steps, tiles,
                              sums);
      if (__any_sync(0xffffffffu, is_any_infinite(sums))) {
        finish_channel_within_windows<Post>(a, channel + c, row, tiles, bias);
      } else {
        finish_channel<Post>(a, row, tiles, lane, sums);
      }
    }
    __syncwarp();
    transpose_rows(transposed, column, a.stage_positions, tiles * kTileOutputs, lane);
    __syncthreads();
    store_columns(a, segment, stage);
    stage += a.stage_bytes();
    if (stage == ring_end) stage = ring;
  }
}

// Without a chain.
template <class Element>
__global__ void __launch_bounds__(kLongFilterThreads, long_filter_blocks(LongFilterKernel::long_filter_channels))
    plain_long_filter_channels_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  long_filter_channels<NoChains>(a);
}

template <class Element>
__global__ void __launch_bounds__(kLongFilterThreads, long_filter_blocks(LongFilterKernel::long_filter_channels))
    interpreted_long_filter_channels_kernel(const __grid_constant__ LongFilterArguments<Element> a) {
  long_filter_channels<ElementwiseChains<Element>>(a);
}

template <class Element>
struct Interpreted<LongFilterKernel::long_filter_channels, Element> {
  static Kernel<LongFilterArguments<Element>> of(const Conv1dParams& params) {
    return is_plain(params) ? plain_long_filter_channels_kernel<Element>
                            : interpreted_long_filter_channels_kernel<Element>;
  }
};

}  // namespace sluice
