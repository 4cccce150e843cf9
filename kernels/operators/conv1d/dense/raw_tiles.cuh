// Raw tiles: spans of an input's contiguous positions on their way into a stage (transpose.cuh).
//
//   a row of words    a channel's 64 positions; for unaligned rows the words that they touch
//   raw tile          32 bytes of channels: 16 of a half type, 8 of float32
//
// Channels are far apart in memory, so each request to the L2 cache is 128 bytes of one channel.
#pragma once

#include "kernels/operators/conv1d/dense/input.cuh"
#include "kernels/shared/common/edges.cuh"

namespace sluice {

template <class Element>
inline constexpr int kRawChannels = raw_channels(sizeof(Element));
template <class Element, bool Shifted>
inline constexpr int kRawWords = raw_words(Shifted, sizeof(Element));

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
  __device__ __forceinline__ RawWalk(const Arguments& a, int warp) : unit(warp), at(dense_tile(a, tile, Channels)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  template <class Arguments>
  __device__ __forceinline__ bool is_in_stage(const Arguments& a) const {
    return unit < units(a);
  }
  // `lane_channel`: index in the unit.
  template <class Arguments>
  __device__ __forceinline__ void set_position(const Arguments& a, int lane_channel) {
    const int columns = a.k_block / kRawChannels<Element>;  // 1, 2 or 4
    channel = (unit & (columns - 1)) * kRawChannels<Element>;
    row = (unit >> (columns >> 1)) * kRawPositions;
    position = a.input_position(at.position, 0) + row;
    const int first = k_block * a.k_block + channel + lane_channel;
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
    if (exists(a)) at = dense_tile(a, tile, Channels);
  }

 private:
  template <class Arguments>
  __device__ __forceinline__ static int units(const Arguments& a) {
    return ceil_div(a.stage_positions(), kRawPositions) * (a.k_block / kRawChannels<Element>);
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

// Offset of a channel's word in a raw tile. Matrices of half types take words of eight channels at a time, which are
// swizzled into different banks; float32 is read along positions.
template <class Element, bool Shifted>
__device__ __forceinline__ std::uint32_t raw_offset(int channel, int word) {
  const bool swizzles = sizeof(Element) == 2 && !Shifted;
  return static_cast<std::uint32_t>((channel * kRawWords<Element, Shifted> + (swizzles ? word ^ (channel & 7) : word)) *
                                    kWordBytes);
}

// Copies the raw tile of `walk` to shared address `to`, asynchronously. A lane copies a word of each kStep-th channel;
// of unaligned rows the first lanes copy a channel's last word each.
template <class Element, bool Shifted, int Channels, class Arguments>
__device__ __forceinline__ void copy_raw_tile(const Arguments& a, RawWalk<Element, Channels>& walk, std::uint32_t to) {
  constexpr int kElements = kWordElements<Element>, kWords = kRawWords<Element, Shifted>;
  constexpr int kChannels = kRawChannels<Element>, kWholeWords = kRawWords<Element, false>, kStep = 32 / kWholeWords;
  const int lane = static_cast<int>(threadIdx.x) % 32, own = lane / kWholeWords, word = lane % kWholeWords;
  walk.set_position(a, own);
  if constexpr (Shifted) {
    const long long first_element =
        walk.from - a.input.template as<const Element>() - own * a.input.strides[1] + walk.position;
    const int channels = min_of(kChannels, walk.channels_left + own);
    // Memory of the tensor around a row is read with it and zeroed later.
    const bool is_readable =
        first_element >= kElements &&
        first_element + (channels - 1) * a.input.strides[1] + (kWords + 1) * kElements <= a.input_extent;
    const auto copy = [&](int c, int w, auto&& copy_word) {
      const Element* const at = walk.from + c * a.input.strides[1] + walk.position + w * kElements;
      const int before = elements_before(at);
      copy_word(to + raw_offset<Element, Shifted>(own + c, w), at - before, walk.position + w * kElements - before,
                c < walk.channels_left);
    };
    const int last = lane - own;  // channels from the lane's own to that whose last word it copies
    if (is_readable) {
      const auto copy_whole = [&](std::uint32_t destination, const Element* at, int, bool is_channel) {
        copy_swizzled_word(destination, is_channel ? at : a.input.template as<const Element>(),
                           is_channel ? kWordBytes : 0);
      };
#pragma unroll
      for (int c = 0; c < kChannels; c += kStep) copy(c, word, copy_whole);
      if (lane < kChannels) copy(last, kWholeWords, copy_whole);
    } else {
      const auto copy_edge = [&](std::uint32_t destination, const Element* at, int position, bool is_channel) {
        copy_edge_word(a, destination, at, position, is_channel);
      };
#pragma unroll 1
      for (int c = 0; c < kChannels + kStep; c += kStep) {
        if (c < kChannels || lane < kChannels) {
          copy(c < kChannels ? c : last, c < kChannels ? word : kWholeWords, copy_edge);
        }
      }
    }
  } else if (walk.row + word * kElements < a.stage_positions()) {
    // The input's rows are whole words.
    const int first = walk.position + word * kElements;
    const bool is_inside = first >= 0 && first < a.length;
    const Element* const at = is_inside ? walk.from + first : a.input.template as<const Element>();
#pragma unroll
    for (int c = 0; c < kChannels; c += kStep) {
      const bool exists = is_inside && c < walk.channels_left;
      copy_swizzled_word(to + raw_offset<Element, Shifted>(own + c, word), exists ? at + c * a.input.strides[1] : at,
                         exists ? kWordBytes : 0);
    }
  }
}

}  // namespace sluice
