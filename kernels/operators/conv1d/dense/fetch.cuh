// The fetching warps of the dense kernel: stages of the input, and weights.
//
//   contiguous in the input    how it reaches a stage's rows of channels
//   channels                   boxes of a tensor map, or where there is none asynchronous copies of 16 bytes; `pre` in
//                              place in shared memory
//   positions                  asynchronous copies into raw tiles, then transposed
//   neither                    a word of channels by as many positions a thread at a time, through registers
//
// Float32 is rounded to TF32, or split in two parts, where `pre` is applied.
#pragma once

#include "kernels/operators/conv1d/dense/copy_input.cuh"
#include "kernels/operators/conv1d/dense/transpose.cuh"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {

// The first position and channel of a block.
struct DenseSource {
  int batch, group_or_split, channel, position;
};

// A word of channels at as many positions; zeros outside of the input.
template <class Element, class Arguments>
__device__ __forceinline__ void load_block(const Arguments& a, const DenseSource& at,
                                           Word (&words)[kWordElements<Element>]) {
  const auto* const from = a.input.template as<const Element>() + at.batch * a.input.strides[0] +
                           (a.first_input_channel(at.group_or_split) + at.channel) * a.input.strides[1] +
                           at.position * a.input.strides[2];
  const int positions = a.length - at.position, channels = a.input_channels_of(at.group_or_split) - at.channel;
#pragma unroll
  for (int p = 0; p < kWordElements<Element>; ++p) {
    const int step = p * a.stride();
    const bool exists = channels > 0 && step < positions && step + at.position >= 0;
    words[p] = gather_elements<Element>([&](int c) {
      return exists && c < channels ? from[c * a.input.strides[1] + p * a.row_pitch()] : Element(0.0f);
    });
  }
}

// The same into word `word` of rows from `row` on of the stage at `to`.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void gather_block(const Arguments& a, const DenseSource& at, std::uint32_t to, int row,
                                             int word) {
  Word words[kWordElements<Element>];
  load_block<Element>(a, at, words);
#pragma unroll
  for (int p = 0; p < kWordElements<Element>; ++p) {
    const auto offset = static_cast<std::uint32_t>((row + p) * a.row_bytes + word * 16);
    store_staged<Pre, Element>(a, at.batch, at.group_or_split, at.channel, at.position + p * a.stride(),
                               to + swizzled(offset, a.row_bytes), words[p]);
  }
}

// All stages through registers.
template <class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void gather_input(const Arguments& a, std::uint32_t stages, DenseShared& shared,
                                             int thread) {
  constexpr int kElements = kWordElements<Element>;
  const int row_words = a.row_bytes / 16, shift = 31 - __clz(row_words), blocks = a.stage_rows / kElements * row_words;
  PipelineState state;
  bool used = false;
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile(a, t, Channels);
    for (ResidueStep step; step.k_block < a.k_blocks_of(tile.group_or_split); step.advance(a)) {
      if (used) wait_for_phase(shared.input_empty + state.stage, state.parity ^ 1);
      const std::uint32_t to = stages + state.stage * a.input_stage_bytes();
      for (int block = thread; block < blocks; block += kDenseFetchThreads) {
        const int row = (block >> shift) * kElements, word = block & (row_words - 1);
        const DenseSource at = {tile.batch, tile.group_or_split, step.k_block * a.k_block + word * kElements,
                                a.input_position(tile.position, step.residue) + row * a.stride()};
        gather_block<Pre, Element>(a, at, to, row, word);
      }
      hand_over(shared, state.stage);
      state.advance(a.input_stages);
      used = used || state.stage == 0;
    }
  }
}

// The input of all the block's tiles, by kDenseFetchThreads threads.
template <class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void fetch_input(const Arguments& a, std::uint32_t stages, std::uint32_t raw,
                                            DenseShared& shared, int thread) {
  if (a.is_converted) await_previous();
  if (a.map.exists()) {
    const bool changes = changes_copies<Pre, Element>(a);
    if (thread == 0) {
      copy_mapped_input<Channels>(a, stages, shared, changes ? shared.input_copied : shared.input_full);
    } else if (changes && thread >= 32) {
      change_mapped_input<Pre, Element, Channels>(a, stages, shared, thread - 32);
    }
    return;
  }
  switch (a.fetch) {
    case DenseFetch::channels: copy_input<Pre, Element, Channels>(a, stages, shared, thread); break;
    case DenseFetch::positions: transpose_input<false, Pre, Element, Channels>(a, stages, raw, shared, thread); break;
    case DenseFetch::shifted: transpose_input<true, Pre, Element, Channels>(a, stages, raw, shared, thread); break;
    case DenseFetch::elements: gather_input<Pre, Element, Channels>(a, stages, shared, thread); break;
  }
}

// The weights of all the block's tiles, by one thread.
template <int Channels, class Arguments>
__device__ __forceinline__ void fetch_weights(const Arguments& a, std::uint32_t stages, DenseShared& shared) {
  PipelineState state;
  bool used = false;
  const std::size_t part_bytes = static_cast<std::size_t>(a.packed_rows) * a.row_bytes;
  if (!a.is_converted) await_previous();  // which may be packing them
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile(a, t, Channels);
    const std::uint32_t bytes = min_of(Channels, a.packed_end(tile.group_or_split) - tile.channel) * a.row_bytes;
    for (ResidueStep step; step.k_block < a.k_blocks_of(tile.group_or_split); step.advance(a)) {
      for (int k = 0; k < a.taps_of(step.residue); k += a.stage_taps) {
        if (used) wait_for_phase(shared.weight_empty + state.stage, state.parity ^ 1);
        const int tiles = min_of(a.stage_taps, a.taps_of(step.residue) - k) * a.parts;
        std::uint64_t* const full = shared.weight_full + state.stage;
        arrive_expecting(full, bytes * tiles);
        for (int i = 0; i < tiles; ++i) {
          const int part = i & (a.parts - 1), own = i >> (a.parts - 1);
          const std::size_t k_block = a.first_k_block(tile.group_or_split) + step.k_block;
          const std::size_t tap = k_block * a.taps + step.residue + k * a.tap_step() + own * a.tap_step();
          const char* const from = a.packed + (tap * a.parts + part) * part_bytes + tile.channel * a.row_bytes;
          copy_bulk(stages + state.stage * a.weight_stage_bytes(Channels) + i * Channels * a.row_bytes, from, bytes,
                    full);
        }
        state.advance(a.weight_stages);
        used = used || state.stage == 0;
      }
    }
    if (a.resident) return;
  }
}

}  // namespace sluice
