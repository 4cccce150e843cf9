// Copies an input of contiguous channels into stages, and changes its words in place: `pre`, and float32 for the tensor
// cores.
//
//   a tensor map    warp 0            boxes into a stage, which is copied, or full where nothing is changed
//                   warps 1 .. 6      change the words of a copied stage, which is then full
//   none            warps 0 .. 6      copy words of 16 bytes, and change their own
#pragma once

#include "kernels/operators/conv1d/dense/input.cuh"

namespace sluice {

// A stage in flight, and the input of its rows.
struct PendingStage {
  int stage = -1, batch, group_or_split, channel, position;
};

// A thread's words of a stage: of every `step`-th row.
struct ThreadWords {
  int word, first, step;

  template <class Arguments>
  __device__ __forceinline__ ThreadWords(const Arguments& a, int thread, int threads) {
    const int shift = 31 - __clz(a.row_bytes / 16);  // log2 of a row's words
    word = thread & ((1 << shift) - 1), first = thread >> shift, step = threads >> shift;
  }
  // The word of a row in the stage at shared address `stage`.
  template <class Arguments>
  __device__ __forceinline__ std::uint32_t address(const Arguments& a, std::uint32_t stage, int row) const {
    return stage + swizzled(static_cast<std::uint32_t>(row * a.row_bytes + word * 16), a.row_bytes);
  }
  // The word's first channel in its group.
  template <class Element, class Arguments>
  __device__ __forceinline__ int channel(const Arguments& a, int k_block) const {
    return k_block * a.k_block + word * kWordElements<Element>;
  }
};

// Whether the words of a copied stage are changed in place.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ bool changes_copies(const Arguments& a) {
  return (sizeof(Element) == 4 && (a.parts == 2 || !Arguments::kKeepsSingles)) || !Pre{a.pre}.empty();
}
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ void change_copies(const Arguments& a, const ThreadWords& own, std::uint32_t stage,
                                              int batch, int group_or_split, int channel, int position) {
  if (sizeof(Element) == 4 && Pre{a.pre}.empty()) {
    const int rows = ceil_div(a.stage_rows - own.first, own.step);
    convert_singles(a, rows, [&](int i) { return own.address(a, stage, own.first + i * own.step); });
  } else if (!Pre{a.pre}.empty()) {
#pragma unroll 1
    for (int row = own.first; row < a.stage_rows; row += own.step) {
      change_in_place<Pre, Element>(a, batch, group_or_split, channel, position + row * a.stride(),
                                    own.address(a, stage, row));
    }
  }
}

// The threads that hand over a stage: all that fetch, or where it is copied by a tensor map the copying thread, or the
// warps that change its words.
template <class Pre, class Element, class Arguments>
__device__ __forceinline__ int filling_threads(const Arguments& a) {
  if (!a.map.exists()) return kDenseFetchThreads;
  return changes_copies<Pre, Element>(a) ? kDenseChangeThreads : 1;
}

// All stages by asynchronous copies: channels are contiguous. A thread changes the words that it copied.
template <class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void copy_input(const Arguments& a, std::uint32_t stages, DenseShared& shared, int thread) {
  const ThreadWords own(a, thread, kDenseFetchThreads);
  PipelineState state;
  bool used = false;
  PendingStage pending;
  const auto finish_pending = [&] {
    if (pending.stage < 0) return;
    change_copies<Pre, Element>(a, own, stages + pending.stage * a.input_stage_bytes(), pending.batch,
                                pending.group_or_split, pending.channel, pending.position);
    hand_over(shared, pending.stage);
    pending.stage = -1;
  };
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile(a, t, Channels);
    for (ResidueStep step; step.k_block < a.k_blocks_of(tile.group_or_split); step.advance(a)) {
      if (used && !has_ended(shared.input_empty + state.stage, state.parity ^ 1)) {
        asm volatile("cp.async.wait_all;" : : : "memory");
        finish_pending();
        wait_for_phase(shared.input_empty + state.stage, state.parity ^ 1);
      }
      const int channel = own.channel<Element>(a, step.k_block), start = a.input_position(tile.position, step.residue);
      const std::uint32_t to = stages + state.stage * a.input_stage_bytes();
      const int length = channel < a.input_channels_of(tile.group_or_split) ? a.length : 0;
      const auto* from = a.input.template as<const Element>() + tile.batch * a.input.strides[0] +
                         a.first_input_channel(tile.group_or_split) + channel +
                         (start + own.first * a.stride()) * a.input.strides[2];
      if (start >= 0 && start + a.row_reach() <= length) {
#pragma unroll 4
        for (int row = own.first; row < a.stage_rows; row += own.step, from += own.step * a.row_pitch()) {
          copy_swizzled_word(own.address(a, to, row), from);
        }
      } else {
#pragma unroll 1
        for (int row = own.first; row < a.stage_rows; row += own.step, from += own.step * a.row_pitch()) {
          const int position = start + row * a.stride();
          const bool exists = position >= 0 && position < length;
          copy_swizzled_word(own.address(a, to, row), exists ? from : a.input.data, exists ? 16 : 0);
        }
      }
      asm volatile("cp.async.commit_group;" : : : "memory");
      asm volatile("cp.async.wait_group 1;" : : : "memory");
      finish_pending();
      pending = {state.stage, tile.batch, tile.group_or_split, channel, start};
      state.advance(a.input_stages);
      used = used || state.stage == 0;
    }
  }
  asm volatile("cp.async.wait_all;" : : : "memory");
  finish_pending();
}

// All stages by a tensor map, by one thread. `filled`: barriers of the stages.
template <int Channels, class Arguments>
__device__ __forceinline__ void copy_mapped_input(const Arguments& a, std::uint32_t stages, DenseShared& shared,
                                                  std::uint64_t* filled) {
  const int rows = a.map.rows, bytes = rows * a.row_bytes;
  PipelineState state;
  bool used = false;
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile(a, t, Channels);
    const int first_channel = a.first_input_channel(tile.group_or_split);
    for (ResidueStep step; step.k_block < a.k_blocks_of(tile.group_or_split); step.advance(a)) {
      if (used) wait_for_phase(shared.input_empty + state.stage, state.parity ^ 1);
      const std::uint32_t to = stages + state.stage * a.input_stage_bytes();
      const int channel = first_channel + step.k_block * a.k_block,
                position = a.input_position(tile.position, step.residue);
      arrive_expecting(filled + state.stage, a.map.copies * bytes);
      for (int i = 0; i < a.map.copies; ++i) {
        copy_box(to + i * bytes, &a.map.map, channel, position + i * rows * a.stride(), tile.batch,
                 filled + state.stage);
      }
      state.advance(a.input_stages);
      used = used || state.stage == 0;
    }
  }
}

template <class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void change_mapped_input(const Arguments& a, std::uint32_t stages, DenseShared& shared,
                                                    int thread) {
  const ThreadWords own(a, thread, kDenseChangeThreads);
  PipelineState state;
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile(a, t, Channels);
    for (ResidueStep step; step.k_block < a.k_blocks_of(tile.group_or_split); step.advance(a)) {
      wait_for_phase(shared.input_copied + state.stage, state.parity);
      change_copies<Pre, Element>(a, own, stages + state.stage * a.input_stage_bytes(), tile.batch, tile.group_or_split,
                                  own.channel<Element>(a, step.k_block), a.input_position(tile.position, step.residue));
      hand_over(shared, state.stage);
      state.advance(a.input_stages);
    }
  }
}

}  // namespace sluice
