// Fetches a unit's stage, by the producers: the input rows of its taps, and their weights.
//
//   contiguous in the input    how it reaches a stage's rows of channels
//   channels                   asynchronous copies of 16 bytes; consumers change the words in place: `pre`, and float32
//                              in parts
//   else                       a word of channels by as many positions a thread at a time, through registers
#pragma once

#include "kernels/operators/conv1d/dense/copy_input.cuh"
#include "kernels/operators/conv1d/dense/fetch.cuh"
#include "kernels/operators/conv1d/dense/portable/arguments.cuh"

namespace sluice {

// Where a thread's words of weights are.
struct WeightWords {
  std::uint32_t to;    // the thread's first in a tile of a stage
  std::uint32_t from;  // the same word in the packed weight, of the first half of a k-block

  template <class Arguments>
  __device__ __forceinline__ WeightWords(const Arguments& a, int thread) : to(thread * kWordBytes), from(to) {
    if (!a.halves_k_blocks) return;
    const std::uint32_t word = swizzled(to, a.row_bytes), row = word / a.row_bytes;
    from = swizzled(word + row * a.row_bytes, a.packed_row_bytes());
  }
};

// A producing thread's share of a tile's units.
template <class Pre, class Element, int Channels, class Arguments>
class UnitSource {
 public:
  using Walk = UnitWalk<Channels, Arguments>;

  __device__ __forceinline__ UnitSource(const Arguments& arguments, const Walk& walk)
      : a(arguments), own_(a, UnitPipe::thread(), kPortableProducers), own_weights_(a, UnitPipe::thread()) {
    begin_tile(walk.tile());
  }

  __device__ __forceinline__ void begin_tile(const DenseTile& tile) {
    const int channel = own_.channel<Element>(a, 0);
    channels_ = a.input_channels_of(tile.group_or_split) - channel;
    rows_ = reinterpret_cast<const char*>(a.input.template as<const Element>() + tile.batch * a.input.strides[0] +
                                          a.first_input_channel(tile.group_or_split) + channel);
    position_ = a.input_position(tile.position, 0);
    first_k_block_ = a.first_k_block(tile.group_or_split);
    weights_ = a.packed + static_cast<long long>(tile.channel) * a.packed_row_bytes();
    weight_bytes_ = min_of(a.columns() * Channels, a.packed_end(tile.group_or_split) - tile.channel) * a.row_bytes;
  }

  __device__ __forceinline__ void copy_all_weights(std::uint32_t to) const {
    for (int k = 0; k < a.k_blocks; ++k) copy_weights(k, 0, 1, a.taps, to + k * a.taps * a.tap_bytes(Channels));
  }

  __device__ __forceinline__ Unit unit(const Walk& walk) const {
    const int resident = (walk.k_block * a.taps + walk.first_tap()) * a.tap_bytes(Channels);
    return {.k_block = walk.k_block,
            .position = position_ + walk.positions(),
            .taps = walk.taps(),
            .weights = a.resident ? resident : a.input_stage_bytes(),
            .ends_tile = walk.ends_tile()};
  }

  // The walk's unit, of the tile that was begun last, into the stage at `to`.
  __device__ __forceinline__ void fetch(const Walk& walk, std::uint32_t to) const {
    a.fetch == DenseFetch::channels ? copy_rows(walk, own_.address(a, to, own_.first)) : gather_rows(walk, to);
    if (a.resident) return;
    copy_weights(first_k_block_ + walk.k_block, walk.first_tap(), a.tap_step(), walk.taps(),
                 to + a.input_stage_bytes());
  }

 private:
  // Weights of `count` taps of a k-block, from tap `first` on and `step` taps apart, into consecutive tiles at `to`.
  __device__ __forceinline__ void copy_weights(int k_block, int first, int step, int count, std::uint32_t to) const {
    constexpr int kThreadBytes = kPortableProducers * kWordBytes;
    const int tile_bytes = a.columns() * Channels * a.row_bytes, from_step = a.halves_k_blocks ? 2 : 1;
    const std::uint32_t half = a.halves_k_blocks && k_block % 2 != 0 ? a.row_bytes : 0;
    const char* from = weights_ + a.k_block_start(k_block) + first * a.tap_pitch_bytes + (own_weights_.from ^ half);
    const int bytes = weight_bytes_ - static_cast<int>(own_weights_.to);
    to += own_weights_.to;
#pragma unroll 1
    for (int i = 0; i < count; ++i, from += step * a.tap_pitch_bytes) {
      const char* part = from;
#pragma unroll 1
      for (int left = a.parts; left > 0; --left, part += a.tap_pitch_bytes / 2, to += tile_bytes) {
#pragma unroll 4
        for (int at = 0; at < bytes; at += kThreadBytes) copy_swizzled_word(to + at, part + at * from_step);
      }
    }
  }

  // Channels are contiguous in the input. `to`: where the thread's first word goes.
  __device__ __forceinline__ void copy_rows(const Walk& walk, std::uint32_t to) const {
    const int before = position_ + walk.positions(), first = before + own_.first * a.stride();
    const int length = walk.k_block * a.k_block < channels_ ? a.length : 0;
    const int rows = a.tile_positions + (walk.taps() - 1) * a.row_step() - own_.first;
    const int to_step = own_.step * a.row_bytes, position_step = own_.step * a.stride();
    const char* from = rows_ + first * a.row_pitch_bytes + walk.k_block * a.row_bytes;
    const long long from_step = position_step * a.row_pitch_bytes;
    if (before >= 0 && first + (rows - 1) * a.stride() < length) {
#pragma unroll 4
      for (int row = 0; row < rows; row += own_.step, from += from_step, to += to_step) copy_swizzled_word(to, from);
      return;
    }
#pragma unroll 1
    for (int row = 0, position = first; row < rows; row += own_.step, from += from_step, to += to_step) {
      const bool exists = static_cast<unsigned>(position) < static_cast<unsigned>(length);
      copy_swizzled_word(to, exists ? from : static_cast<const void*>(a.input.data), exists ? kWordBytes : 0);
      position += position_step;
    }
  }

  __device__ __forceinline__ void gather_rows(const Walk& walk, std::uint32_t to) const {
    constexpr int kElements = kWordElements<Element>;
    const DenseTile tile = walk.tile();
    const int row_words = a.row_bytes / 16, shift = 31 - __clz(row_words);
    const int rows = a.tile_positions + (walk.taps() - 1) * a.row_step(), first = position_ + walk.positions();
    const int blocks = ceil_div(rows, kElements) * row_words;
#pragma unroll 1
    for (int block = UnitPipe::thread(); block < blocks; block += kPortableProducers) {
      const int row = (block >> shift) * kElements, word = block & (row_words - 1);
      const DenseSource at = {tile.batch, tile.group_or_split, walk.k_block * a.k_block + word * kElements,
                              first + row * a.stride()};
      gather_block<Pre, Element>(a, at, to, row, word);
    }
  }

  const Arguments& a;
  ThreadWords own_;
  WeightWords own_weights_;
  const char* rows_;     // the thread's first word at the tile's batch, position 0 and k-block 0
  const char* weights_;  // the tile's weights of tap 0 and k-block 0
  int first_k_block_;    // of the packed weight
  int weight_bytes_;     // bytes of a tap's weights in a stage
  int position_;         // of the input, in the first row of the tile's first unit
  int channels_;         // channels from the thread's word of k-block 0 to the last
};

}  // namespace sluice
