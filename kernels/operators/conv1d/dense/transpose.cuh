// Transposes an input of contiguous positions into a stage's rows of channels. Each fetching warp has its own ring:
//
//   raw ring   [ 16 channels x 64 positions | .. ]   asynchronous copies of 16 bytes, kRawTiles - 1 tiles ahead
//                    |  `Shifted`: each channel's words realigned to the tile's first position
//                    |  four matrices of 8 channels x 8 positions, transposed
//   stage      rows of channels, one a position; `pre` in state
//
// Channels are far apart in memory, so each request to the L2 cache is 128 bytes of one channel.
#pragma once

#include "kernels/operators/conv1d/dense/input.cuh"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/mma/matrices.cuh"

namespace sluice {

// A warp's raw tiles in order: every seventh of a stage's, with channels as the inner dimension. The count continues
// from stage to stage, so all warps get equally many.
template <class Element, int Channels>
struct RawWalk {
  int tile = blockIdx.x, k_block = 0, unit;  // `unit`: index of a raw tile in the stage
  DenseTile at;
  int row = 0, channel = 0;       // the unit's first position and channel in the stage
  int position = 0;               // its first position in the input
  int channels_left = 0;          // channels from the lane's channel to the last
  const Element* from = nullptr;  // position 0 of the lane's channel

  template <class Arguments>
  __device__ __forceinline__ RawWalk(const Arguments& a, int warp) : unit(warp), at(dense_tile<Channels>(a, tile)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  template <class Arguments>
  __device__ __forceinline__ bool is_in_stage(const Arguments& a) const {
    return unit < units(a);
  }
  // `lane_channel`: index in the unit.
  template <class Arguments>
  __device__ __forceinline__ void set_position(const Arguments& a, int lane_channel) {
    const int columns = a.k_block() / kRawChannels;  // 1, 2 or 4
    channel = (unit & (columns - 1)) * kRawChannels;
    row = (unit >> (columns >> 1)) * kRawPositions;
    position = a.input_position(at.position, 0) + row;
    const int first = k_block * a.k_block() + channel + lane_channel;
    channels_left = a.input_channels_of(at.group_or_split) - first;
    from = a.input.template as<const Element>() + at.batch * a.input.strides[0] +
           (a.first_input_channel(at.group_or_split) + first) * a.input.strides[1];
  }
  __device__ __forceinline__ void advance() { unit += kDenseFetchThreads / 32; }
  template <class Arguments>
  __device__ __forceinline__ void advance_stage(const Arguments& a) {
    unit -= units(a);
    if (++k_block < a.k_blocks_of(at.group_or_split)) return;
    k_block = 0, tile += gridDim.x;
    if (exists(a)) at = dense_tile<Channels>(a, tile);
  }

 private:
  template <class Arguments>
  __device__ __forceinline__ static int units(const Arguments& a) {
    return ceil_div(a.stage_positions(), kRawPositions) * (a.k_block() / kRawChannels);
  }
};

// Elements in an element's word before it.
template <class Element>
__device__ __forceinline__ int elements_before(const Element* element) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(element) / sizeof(Element) % kWordElements<Element>);
}

// Copies the word at position `first` of an unaligned row near the tensor's ends. Elements beyond the row are read only
// where the whole word is in the tensor.
template <class Element>
__device__ __forceinline__ void copy_edge_word(const DenseArguments& a, std::uint32_t to, const Element* word,
                                               int first, bool is_channel) {
  constexpr int kElements = kWordElements<Element>;
  const auto* const input = a.input.as<const Element>();
  const bool exists = is_channel && first > -kElements && first < a.length;
  if (exists && (first < 0 || first + kElements > a.length) &&
      (word < input || word + kElements > input + a.input_extent)) {
    // Element by element: registers are scarce, and there are only two such words.
    auto* const elements = static_cast<Element*>(__cvta_shared_to_generic(to));
#pragma unroll 1
    for (int i = max_of(0, -first); i < min_of(kElements, a.length - first); ++i) elements[i] = word[i];
    return;
  }
  copy_swizzled_word(to, exists ? word : input, exists ? kWordBytes : 0);
}

// Zeros the elements of a pair outside of the input.
__device__ __forceinline__ std::uint32_t existing_pair(std::uint32_t pair, int position, int length) {
  const bool first = position >= 0 && position < length, second = position >= -1 && position < length - 1;
  return pair & ((first ? 0xffffu : 0u) | (second ? 0xffff0000u : 0u));
}

// Realigns a raw tile in state, so that each channel's words begin at the tile's first `position`. Positions outside of
// the input become zero. A lane handles a quarter of a channel's words at a time.
template <class Element, class OffsetOf>
__device__ __forceinline__ void realign(std::uint32_t tile, const OffsetOf& offset_of, const Element* channel,
                                        int position, int length) {
  constexpr int kWords = 2;
  const int lane = static_cast<int>(threadIdx.x) % 32, own = lane % 16;
  const int bytes = elements_before(channel + position) * static_cast<int>(sizeof(Element));
  const bool at_edge = position < 0 || position + kRawPositions > length;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int first = half * 2 * kWords + lane / 16 * kWords;
    Word words[kWords + 1];
#pragma unroll
    for (int i = 0; i <= kWords; ++i) words[i] = load_shared_word(tile + offset_of(own, first + i));
    __syncwarp();  // all have read
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      Word word = shift_words(words[i], words[i + 1], bytes);
      const int at = position + (first + i) * kWordElements<Element>;
      if (at_edge && (at < 0 || at + kWordElements<Element> > length)) {
#pragma unroll
        for (int j = 0; j < 4; ++j) word.lanes[j] = existing_pair(word.lanes[j], at + 2 * j, length);
      }
      store_shared_word(tile + offset_of(own, first + i), word);
    }
  }
  __syncwarp();
}

template <bool Shifted, class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void transpose_input(const Arguments& a, std::uint32_t stages, std::uint32_t raw,
                                                DenseShared& shared, int thread) {
  using Walk = RawWalk<Element, Channels>;
  constexpr int kWords = raw_words(Shifted), kTileBytes = kRawChannels * kWords * kWordBytes;
  constexpr int kElements = kWordElements<Element>;
  const int warp = thread / 32, lane = thread % 32;
  raw += warp * raw_ring_bytes(Shifted);
  // A raw tile's row of words is a channel. Eight words are swizzled so that words of eight channels are in different
  // banks.
  const auto offset_of = [](int channel, int word) {
    return static_cast<std::uint32_t>((channel * kWords + (Shifted ? word : word ^ (channel & 7))) * kWordBytes);
  };
  Walk ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // indices in the ring
  // Lane l copies word l % 8 of channels l / 8, 4 + l / 8 ..; 16 lanes copy the ninth words.
  const auto copy_tile = [&] {
    while (ahead.exists(a) && !ahead.is_in_stage(a)) ahead.advance_stage(a);
    if (ahead.exists(a)) {
      const int own = lane / 8, word = lane % 8;
      ahead.set_position(a, own);
      const std::uint32_t to = raw + ahead_tile * kTileBytes;
      const int first = ahead.position + word * kElements;
      if constexpr (Shifted) {
        const long long first_element =
            ahead.from - a.input.template as<const Element>() - own * a.input.strides[1] + ahead.position;
        const int channels = min_of(kRawChannels, ahead.channels_left + own);
        // Memory of the tensor around a row is read with it and zeroed by realign().
        const bool is_readable =
            first_element >= kElements &&
            first_element + (channels - 1) * a.input.strides[1] + (kWords + 1) * kElements <= a.input_extent;
        const auto copy = [&](int c, int w, auto&& copy_word) {
          const Element* const at = ahead.from + c * a.input.strides[1] + ahead.position + w * kElements;
          const int before = elements_before(at);
          copy_word(to + offset_of(own + c, w), at - before, ahead.position + w * kElements - before,
                    c < ahead.channels_left);
        };
        const int ninth = lane - own;  // channels from the lane's own to that whose ninth word it copies
        if (is_readable) {
          const auto copy_whole = [&](std::uint32_t destination, const Element* at, int, bool is_channel) {
            copy_swizzled_word(destination, is_channel ? at : a.input.template as<const Element>(),
                               is_channel ? kWordBytes : 0);
          };
#pragma unroll
          for (int c = 0; c < kRawChannels; c += 4) copy(c, word, copy_whole);
          if (lane < kRawChannels) copy(ninth, 8, copy_whole);
        } else {
          const auto copy_edge = [&](std::uint32_t destination, const Element* at, int position, bool is_channel) {
            copy_edge_word(a, destination, at, position, is_channel);
          };
#pragma unroll 1
          for (int c = 0; c < kRawChannels + 4; c += 4) {
            if (c < kRawChannels || lane < kRawChannels) {
              copy(c < kRawChannels ? c : ninth, c < kRawChannels ? word : 8, copy_edge);
            }
          }
        }
      } else if (ahead.row + word * kElements < a.stage_positions()) {
        // The input's rows are whole words.
        const bool is_inside = first >= 0 && first < a.length;
        const Element* const at = is_inside ? ahead.from + first : a.input.template as<const Element>();
#pragma unroll
        for (int c = 0; c < kRawChannels; c += 4) {
          const bool exists = is_inside && c < ahead.channels_left;
          copy_swizzled_word(to + offset_of(own + c, word), exists ? at + c * a.input.strides[1] : at,
                             exists ? kWordBytes : 0);
        }
      }
      ahead.advance();
      if (++ahead_tile == kRawTiles) ahead_tile = 0;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  };
  for (int i = 0; i < kRawTiles - 1; ++i) copy_tile();

  // Matrix rows of lane l: channel l % 16, word l / 16 of 16 positions.
  const int matrix_channel = lane % 16, matrix_word = lane / 16;
  PipelineState state;
  bool used = false;
  while (walk.exists(a)) {
    if (!walk.is_in_stage(a)) {
      hand_over(shared, state.stage);
      state.advance(a.input_stages);
      used = used || state.stage == 0;
      walk.advance_stage(a);
      if (walk.exists(a) && used) wait_for_phase(shared.input_empty + state.stage, state.parity ^ 1);
      continue;
    }
    walk.set_position(a, matrix_channel);
    asm volatile("cp.async.wait_group %0;" : : "n"(kRawTiles - 2) : "memory");
    __syncwarp();  // all lanes' copies have arrived, and all have read the previous tile, whose stage is reused
    copy_tile();
    const std::uint32_t from = raw + tile * kTileBytes, to = stages + state.stage * a.input_stage_bytes();
    if (Shifted) realign(from, offset_of, walk.from, walk.position, a.length);
#pragma unroll
    for (int p = 0; p < kRawPositions; p += 16) {
      if (walk.row + p >= a.stage_positions()) break;
      std::uint32_t matrices[4];
      const int word = p / kElements + matrix_word;
      load_transposed(from + offset_of(matrix_channel, word), matrices);
      const int row = a.row_of(walk.row + p + lane / 16 * 8 + lane % 8), column = walk.channel + lane / 8 % 2 * 8;
      const auto offset = static_cast<std::uint32_t>(row * a.row_bytes + column * 2);
      // Rows that no tap reads are written back where this lane read its matrix row.
      const bool is_read = !a.has_unread_positions() || row >= 0;
      store_matrices(is_read ? to + swizzled(offset, a.row_bytes) : from + offset_of(matrix_channel, word), matrices);
    }
    if (!Pre{a.pre}.empty()) {
      __syncwarp();
      const int column = walk.channel + matrix_word * 8, rows = min_of(kRawPositions, a.stage_positions() - walk.row);
#pragma unroll 1
      for (int row = lane % 16; row < rows; row += 16) {
        const int own = a.row_of(walk.row + row);
        if (a.has_unread_positions() && own < 0) continue;
        const auto offset = static_cast<std::uint32_t>(own * a.row_bytes + column * 2);
        apply_pre_in_place<Pre, Element>(a, walk.at.batch, walk.at.group_or_split, walk.k_block * a.k_block() + column,
                                         walk.position + row, to + swizzled(offset, a.row_bytes));
      }
    }
    if (++tile == kRawTiles) tile = 0;
    walk.advance();
  }
}

}  // namespace sluice
