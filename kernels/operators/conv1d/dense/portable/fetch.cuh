// Fetches a unit's stage, by all threads: the input rows of its taps, and their weights.
//
//   contiguous in the input    how it reaches a stage's rows of channels
//   channels                   asynchronous copies of 16 bytes; a thread changes its own words in place when they are
//                              there: `pre`, and float32 for the tensor cores
//   else                       a word of channels by as many positions a thread at a time, through registers
#pragma once

#include "kernels/operators/conv1d/dense/copy_input.cuh"
#include "kernels/operators/conv1d/dense/fetch.cuh"
#include "kernels/operators/conv1d/dense/portable/arguments.cuh"

namespace sluice {

// What a thread copies of a tile's units.
template <class Element, int Channels, class Arguments>
struct TileSource {
  const char* rows;     // the thread's first word at the tile's batch, position 0 and k-block 0
  const char* weights;  // the thread's first word of tap 0 and k-block 0
  int weight_bytes;     // bytes of a tap's weights from there on
  int position;         // the first row's position for tap 0
  int channels;         // channels from the thread's word of k-block 0 to the last

  __device__ __forceinline__ TileSource(const Arguments& a, const DenseTile& tile, const ThreadWords& own) {
    const int channel = own.channel<Element>(a, 0), thread_bytes = static_cast<int>(threadIdx.x) * kWordBytes;
    channels = a.input_channels_of(tile.group_or_split) - channel;
    rows = reinterpret_cast<const char*>(a.input.template as<const Element>() + tile.batch * a.input.strides[0] +
                                         a.first_input_channel(tile.group_or_split) + channel);
    position = a.input_position(tile.position, 0) + own.first * a.stride();
    weights = a.packed + a.first_k_block(tile.group_or_split) * a.taps * a.tap_pitch_bytes +
              static_cast<long long>(tile.channel) * a.row_bytes + thread_bytes;
    weight_bytes =
        min_of(a.columns() * Channels, a.packed_end(tile.group_or_split) - tile.channel) * a.row_bytes - thread_bytes;
  }
};

// Weights of `count` taps, `pitch` bytes apart, into consecutive tiles from `to` on, where the thread's first word
// goes.
template <int Channels, class Pipe, class Arguments>
__device__ __forceinline__ void copy_weights(Pipe& pipe, const Arguments& a, const char* from, int bytes,
                                             long long pitch, int count, std::uint32_t to) {
  constexpr int kThreadBytes = kPortableThreads * kWordBytes;
  const int tile_bytes = a.columns() * Channels * a.row_bytes;
#pragma unroll 1
  for (int i = 0; i < count; ++i, from += pitch) {
    const char* part = from;
#pragma unroll 1
    for (int left = a.parts; left > 0; --left, part += a.tap_pitch_bytes / 2, to += tile_bytes) {
#pragma unroll 4
      for (int at = 0; at < bytes; at += kThreadBytes) pipe.copy_word(to + at, part + at);
    }
  }
}

// A unit's rows; channels are contiguous in the input. `to`: where the thread's first word goes.
template <class Pipe, class Walk, class Source, class Arguments>
__device__ __forceinline__ void copy_rows(Pipe& pipe, const Arguments& a, const Walk& unit, const Source& tile,
                                          const ThreadWords& own, std::uint32_t to) {
  const int first = tile.position + unit.residue * a.dilation + unit.tap * a.tap_positions;
  const int length = unit.k_block * a.k_block < tile.channels ? a.length : 0;
  const int rows = a.tile_positions + (unit.taps() - 1) * a.row_step() - own.first;
  const int to_step = own.step * a.row_bytes, position_step = own.step * a.stride();
  const char* from = tile.rows + first * a.row_pitch_bytes + unit.k_block * a.row_bytes;
  const long long from_step = position_step * a.row_pitch_bytes;
  const int before = first - own.first * a.stride();  // position of the unit's first row
  if (before >= 0 && first + (rows - 1) * a.stride() < length) {
#pragma unroll 4
    for (int row = 0; row < rows; row += own.step, from += from_step, to += to_step) pipe.copy_word(to, from);
    return;
  }
#pragma unroll 1
  for (int row = 0, position = first; row < rows; row += own.step, from += from_step, to += to_step) {
    const bool exists = static_cast<unsigned>(position) < static_cast<unsigned>(length);
    pipe.copy_word(to, exists ? static_cast<const void*>(from) : a.input.data, exists ? kWordBytes : 0);
    position += position_step;
  }
}

template <class Pre, class Element, class Walk, class Arguments>
__device__ __forceinline__ void gather_rows(const Arguments& a, const Walk& unit, std::uint32_t to) {
  constexpr int kElements = kWordElements<Element>;
  const DenseTile tile = unit.tile();
  const int row_words = a.row_bytes / 16, shift = 31 - __clz(row_words);
  const int rows = a.tile_positions + (unit.taps() - 1) * a.row_step();
  const int first = a.input_position(tile.position, unit.residue) + unit.tap * a.tap_positions;
  const int blocks = ceil_div(rows, kElements) * row_words;
#pragma unroll 1
  for (int block = static_cast<int>(threadIdx.x); block < blocks; block += kPortableThreads) {
    const int row = (block >> shift) * kElements, word = block & (row_words - 1);
    gather_block<Pre, Element>(
        a, {tile.batch, tile.group_or_split, unit.k_block * a.k_block + word * kElements, first + row * a.stride()}, to,
        row, word);
  }
}

}  // namespace sluice
