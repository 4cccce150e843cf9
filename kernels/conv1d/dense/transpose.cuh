// Input whose positions lie side by side, on its way to rows of channels. Each fetching warp has a ring of its own:
//
//   raw ring   [ 16 channels x 64 positions | .. ]   16-byte words, asynchronously, all but one tile ahead
//                    |  `Shifted`: each channel's words moved to where the tile begins
//                    |  four matrices of 8 channels x 8 positions, transposed
//   stage      rows of channels, one a position; `pre` where they have come to lie
//
// Channels lie far apart in memory, so what is asked of the L2 cache at once is 128 bytes of each.
#pragma once

#include "kernels/common/edges.cuh"
#include "kernels/conv1d/dense/input.cuh"
#include "kernels/mma/matrices.cuh"

namespace sluice {

// A warp's raw tiles in their order: every seventh of a stage's, channels first. The sevenths go on from stage to
// stage, so that all warps have as many.
template <class Element, int Channels>
struct RawWalk {
  int tile = blockIdx.x, chunk = 0, unit;  // the last: of the stage's raw tiles
  DenseTile at;
  int row = 0, channel = 0;       // of the stage, the unit's first position and channel
  int position = 0;               // of the input, the same
  int channels_left = 0;          // from the lane's channel to the last one
  const Element* from = nullptr;  // position 0 of the lane's channel

  template <class Arguments>
  __device__ __forceinline__ RawWalk(const Arguments& a, int warp) : unit(warp), at(dense_tile<Channels>(a, tile)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  template <class Arguments>
  __device__ __forceinline__ bool is_in_stage(const Arguments& a) const {
    return unit < units(a);
  }
  // `lane_channel`: of the unit's.
  template <class Arguments>
  __device__ __forceinline__ void set_places(const Arguments& a, int lane_channel) {
    const int columns = a.chunk() / kRawChannels;  // 1, 2 or 4
    channel = (unit & (columns - 1)) * kRawChannels;
    row = (unit >> (columns >> 1)) * kRawPositions;
    position = a.input_position(at.position, 0) + row;
    const int first = chunk * a.chunk() + channel + lane_channel;
    channels_left = a.input_channels_of(at.group) - first;
    from = a.input.template as<const Element>() + at.batch * a.input.strides[0] +
           (a.first_input_channel(at.group) + first) * a.input.strides[1];
  }
  __device__ __forceinline__ void advance() { unit += kDenseFetchThreads / 32; }
  template <class Arguments>
  __device__ __forceinline__ void advance_stage(const Arguments& a) {
    unit -= units(a);
    if (++chunk < a.chunks_of(at.group)) return;
    chunk = 0, tile += gridDim.x;
    if (exists(a)) at = dense_tile<Channels>(a, tile);
  }

 private:
  template <class Arguments>
  __device__ __forceinline__ static int units(const Arguments& a) {
    return ceil_div(a.stage_positions(), kRawPositions) * (a.chunk() / kRawChannels);
  }
};

// Elements from the beginning of the word that an element lies in to it.
template <class Element>
__device__ __forceinline__ int elements_before(const Element* element) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(element) / sizeof(Element) % kWordElements<Element>);
}

// A word of a row that begins anywhere, `first` positions into it, where words around it lie outside the tensor: what
// is beyond the row is read only where it lies in the word, and in the tensor.
template <class Element>
__device__ __forceinline__ void copy_edge_word(const DenseArguments& a, std::uint32_t to, const Element* word,
                                               int first, bool is_channel) {
  constexpr int kElements = kWordElements<Element>;
  const auto* const input = a.input.as<const Element>();
  const bool exists = is_channel && first > -kElements && first < a.length;
  if (exists && (first < 0 || first + kElements > a.length) &&
      (word < input || word + kElements > input + a.input_extent)) {
    // One after another, for there are few registers and two such words.
    auto* const elements = static_cast<Element*>(__cvta_shared_to_generic(to));
#pragma unroll 1
    for (int i = max_of(0, -first); i < min_of(kElements, a.length - first); ++i) elements[i] = word[i];
    return;
  }
  copy_piece(to, exists ? word : input, exists ? kWordBytes : 0);
}

// Zeros where a pair of positions is none of the input's.
__device__ __forceinline__ std::uint32_t existing_pair(std::uint32_t pair, int position, int length) {
  const bool first = position >= 0 && position < length, second = position >= -1 && position < length - 1;
  return pair & ((first ? 0xffffu : 0u) | (second ? 0xffff0000u : 0u));
}

// A raw tile, which begins at `position`, in its place: each channel's words to where they begin with the tile's
// positions. What lies around the input's rows becomes zero. A lane has a quarter of a channel's words at a time.
template <class Element, class PlaceOf>
__device__ __forceinline__ void realign(std::uint32_t tile, const PlaceOf& place_of, const Element* channel,
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
    for (int i = 0; i <= kWords; ++i) words[i] = load_shared_word(tile + place_of(own, first + i));
    __syncwarp();  // all have read
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      Word word = shift_words(words[i], words[i + 1], bytes);
      const int at = position + (first + i) * kWordElements<Element>;
      if (at_edge && (at < 0 || at + kWordElements<Element> > length)) {
#pragma unroll
        for (int j = 0; j < 4; ++j) word.lanes[j] = existing_pair(word.lanes[j], at + 2 * j, length);
      }
      store_shared_word(tile + place_of(own, first + i), word);
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
  // Of raw tiles a row of words is a channel. Where there are eight, they change places, so that those of eight
  // channels lie in different banks.
  const auto place_of = [](int channel, int word) {
    return static_cast<std::uint32_t>((channel * kWords + (Shifted ? word : word ^ (channel & 7))) * kWordBytes);
  };
  Walk ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // of the ring
  // Lane l copies word l % 8 of channels l / 8, 4 + l / 8 ..; the ninth words are those of 16 lanes.
  const auto copy_tile = [&] {
    while (ahead.exists(a) && !ahead.is_in_stage(a)) ahead.advance_stage(a);
    if (ahead.exists(a)) {
      const int own = lane / 8, word = lane % 8;
      ahead.set_places(a, own);
      const std::uint32_t to = raw + ahead_tile * kTileBytes;
      const int first = ahead.position + word * kElements;
      if constexpr (Shifted) {
        const long long first_element =
            ahead.from - a.input.template as<const Element>() - own * a.input.strides[1] + ahead.position;
        const int channels = min_of(kRawChannels, ahead.channels_left + own);
        // What of the tensor's memory lies around a row is read with it, and taken away by realign().
        const bool is_readable =
            first_element >= kElements &&
            first_element + (channels - 1) * a.input.strides[1] + (kWords + 1) * kElements <= a.input_extent;
        const auto copy = [&](int c, int w, auto&& copy_word) {
          const Element* const at = ahead.from + c * a.input.strides[1] + ahead.position + w * kElements;
          const int before = elements_before(at);
          copy_word(to + place_of(own + c, w), at - before, ahead.position + w * kElements - before,
                    c < ahead.channels_left);
        };
        const int ninth = lane - own;  // channels from the lane's own to that whose ninth word it copies
        if (is_readable) {
          const auto copy_whole = [&](std::uint32_t place, const Element* at, int, bool is_channel) {
            copy_piece(place, is_channel ? at : a.input.template as<const Element>(), is_channel ? kWordBytes : 0);
          };
#pragma unroll
          for (int c = 0; c < kRawChannels; c += 4) copy(c, word, copy_whole);
          if (lane < kRawChannels) copy(ninth, 8, copy_whole);
        } else {
          const auto copy_edge = [&](std::uint32_t place, const Element* at, int position, bool is_channel) {
            copy_edge_word(a, place, at, position, is_channel);
          };
#pragma unroll 1
          for (int c = 0; c < kRawChannels + 4; c += 4) {
            if (c < kRawChannels || lane < kRawChannels) {
              copy(c < kRawChannels ? c : ninth, c < kRawChannels ? word : 8, copy_edge);
            }
          }
        }
      } else if (ahead.row + word * kElements < a.stage_positions()) {
        // Words end with the input's rows.
        const bool is_inside = first >= 0 && first < a.length;
        const Element* const at = is_inside ? ahead.from + first : a.input.template as<const Element>();
#pragma unroll
        for (int c = 0; c < kRawChannels; c += 4) {
          const bool exists = is_inside && c < ahead.channels_left;
          copy_piece(to + place_of(own + c, word), exists ? at + c * a.input.strides[1] : at, exists ? kWordBytes : 0);
        }
      }
      ahead.advance();
      if (++ahead_tile == kRawTiles) ahead_tile = 0;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  };
  for (int i = 0; i < kRawTiles - 1; ++i) copy_tile();

  // As rows of matrices: channels l % 8 and 8 on, both words of 16 positions.
  const int matrix_channel = lane % 16, matrix_word = lane / 16;
  RingPlace place;
  bool used = false;
  while (walk.exists(a)) {
    if (!walk.is_in_stage(a)) {
      hand_over(shared, place.stage);
      place.advance(a.input_stages);
      used = used || place.stage == 0;
      walk.advance_stage(a);
      if (walk.exists(a) && used) wait_for_phase(shared.input_empty + place.stage, place.parity ^ 1);
      continue;
    }
    walk.set_places(a, matrix_channel);
    asm volatile("cp.async.wait_group %0;" : : "n"(kRawTiles - 2) : "memory");
    __syncwarp();  // all lanes' copies are there, and all have read the tile before, whose place the next one takes
    copy_tile();
    const std::uint32_t from = raw + tile * kTileBytes, to = stages + place.stage * a.input_stage_bytes();
    if (Shifted) realign(from, place_of, walk.from, walk.position, a.length);
#pragma unroll
    for (int p = 0; p < kRawPositions; p += 16) {
      if (walk.row + p >= a.stage_positions()) break;
      std::uint32_t matrices[4];
      const int word = p / kElements + matrix_word;
      load_transposed(from + place_of(matrix_channel, word), matrices);
      const int row = a.row_of(walk.row + p + lane / 16 * 8 + lane % 8), column = walk.channel + lane / 8 % 2 * 8;
      const auto offset = static_cast<std::uint32_t>(row * a.row_bytes + column * 2);
      // What no tap reads goes back to where this lane's part of the matrices was read.
      const bool is_read = !a.has_unread_positions() || row >= 0;
      store_matrices(is_read ? to + swizzled(offset, a.row_bytes) : from + place_of(matrix_channel, word), matrices);
    }
    if (!Pre{a.pre}.empty()) {
      __syncwarp();
      const int column = walk.channel + matrix_word * 8, rows = min_of(kRawPositions, a.stage_positions() - walk.row);
#pragma unroll 1
      for (int row = lane % 16; row < rows; row += 16) {
        const int own = a.row_of(walk.row + row);
        if (a.has_unread_positions() && own < 0) continue;
        const auto offset = static_cast<std::uint32_t>(own * a.row_bytes + column * 2);
        apply_pre_in_place<Pre, Element>(a, walk.at.batch, walk.at.group, walk.chunk * a.chunk() + column,
                                         walk.position + row, to + swizzled(offset, a.row_bytes));
      }
    }
    if (++tile == kRawTiles) tile = 0;
    walk.advance();
  }
}

}  // namespace sluice
