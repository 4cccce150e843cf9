// Transposes an input of contiguous positions into a stage's rows of channels. Each fetching warp has its own ring:
//
//   raw ring    [ raw tile | .. ]   asynchronous copies of 16 bytes, kRawTiles - 1 tiles ahead (raw_tiles.cuh)
//                    |  half types: unaligned rows are realigned in place, then four matrices of 8 x 8 transposed
//                    |  float32: a lane gathers the words of a position
//   stage       rows of channels, one a position; `pre` in place
#pragma once

#include "kernels/operators/conv1d/dense/raw_tiles.cuh"
#include "kernels/shared/mma/matrices.cuh"

namespace sluice {

// Zeros the elements of a pair outside of the input.
__device__ __forceinline__ std::uint32_t existing_pair(std::uint32_t pair, int position, int length) {
  const bool first = position >= 0 && position < length, second = position >= -1 && position < length - 1;
  return pair & ((first ? 0xffffu : 0u) | (second ? 0xffff0000u : 0u));
}

// Realigns a raw tile in place, so that each channel's words begin at the tile's first `position`. Positions outside of
// the input become zero. A lane handles a quarter of a channel's words at a time.
template <class Element>
__device__ __forceinline__ void realign(std::uint32_t tile, const Element* channel, int position, int length) {
  constexpr int kWords = 2;
  const int lane = static_cast<int>(threadIdx.x) % 32, own = lane % 16;
  const int bytes = elements_before(channel + position) * static_cast<int>(sizeof(Element));
  const bool at_edge = position < 0 || position + kRawPositions > length;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int first = half * 2 * kWords + lane / 16 * kWords;
    Word words[kWords + 1];
#pragma unroll
    for (int i = 0; i <= kWords; ++i) words[i] = load_shared_word(tile + raw_offset<Element, true>(own, first + i));
    __syncwarp();  // all have read
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      Word word = shift_words(words[i], words[i + 1], bytes);
      const int at = position + (first + i) * kWordElements<Element>;
      if (at_edge && (at < 0 || at + kWordElements<Element> > length)) {
#pragma unroll
        for (int j = 0; j < 4; ++j) word.lanes[j] = existing_pair(word.lanes[j], at + 2 * j, length);
      }
      store_shared_word(tile + raw_offset<Element, true>(own, first + i), word);
    }
  }
  __syncwarp();
}

// A raw tile of half types, which `walk` has set to the lane's channel `lane % 16`, into rows of the stage at `to`.
template <bool Shifted, class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void transpose_halves(const Arguments& a, const RawWalk<Element, Channels>& walk,
                                                 std::uint32_t from, std::uint32_t to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Matrix rows of lane l: channel l % 16, word l / 16 of 16 positions.
  const int matrix_channel = lane % 16, matrix_word = lane / 16;
  if (Shifted) realign(from, walk.from, walk.position, a.length);
#pragma unroll
  for (int p = 0; p < kRawPositions; p += 16) {
    if (walk.row + p >= a.stage_positions()) break;
    std::uint32_t matrices[4];
    const std::uint32_t at = from + raw_offset<Element, Shifted>(matrix_channel, p / 8 + matrix_word);
    load_transposed(at, matrices);
    const int row = a.row_of(walk.row + p + lane / 16 * 8 + lane % 8), column = walk.channel + lane / 8 % 2 * 8;
    const auto offset = static_cast<std::uint32_t>(row * a.row_bytes + column * 2);
    // Rows that no tap reads are written back where this lane read its matrix row.
    const bool is_read = !a.has_unread_positions() || row >= 0;
    store_matrices(is_read ? to + swizzled(offset, a.row_bytes) : at, matrices);
  }
  if (Pre{a.pre}.empty()) return;
  __syncwarp();
  const int column = walk.channel + matrix_word * 8, rows = min_of(kRawPositions, a.stage_positions() - walk.row);
#pragma unroll 1
  for (int row = lane % 16; row < rows; row += 16) {
    const int own = a.row_of(walk.row + row);
    if (a.has_unread_positions() && own < 0) continue;
    const auto offset = static_cast<std::uint32_t>(own * a.row_bytes + column * 2);
    change_in_place<Pre, Element>(a, walk.at.batch, walk.at.group_or_split, walk.k_block * a.k_block + column,
                                  walk.position + row, to + swizzled(offset, a.row_bytes));
  }
}

// A raw tile of float32, which `walk` has set to its first channel. A lane gathers the words of each 32nd position.
template <bool Shifted, class Pre, int Channels, class Arguments>
__device__ __forceinline__ void transpose_singles(const Arguments& a, const RawWalk<float, Channels>& walk,
                                                  std::uint32_t from, std::uint32_t to) {
  constexpr int kElements = kWordElements<float>;
  const auto* const tile = static_cast<const float*>(__cvta_shared_to_generic(from));
#pragma unroll 1
  for (int row = static_cast<int>(threadIdx.x) % 32; row < kRawPositions; row += 32) {
    if (walk.row + row >= a.stage_positions()) break;
    const int position = walk.position + row, own = a.row_of(walk.row + row);
    if (a.has_unread_positions() && own < 0) continue;
    // Unaligned rows' words have other positions too.
    const bool exists = !Shifted || (position >= 0 && position < a.length);
#pragma unroll
    for (int c = 0; c < kRawChannels<float>; c += kElements) {
      const Word word = gather_elements<float>([&](int i) {
        const float* const channel = walk.from + (c + i) * a.input.strides[1] + walk.position;
        const int before = Shifted ? elements_before(channel) : 0;
        return exists ? tile[raw_offset<float, Shifted>(c + i, 0) / sizeof(float) + before + row] : 0.0f;
      });
      const int column = walk.channel + c;
      const auto offset = static_cast<std::uint32_t>(own * a.row_bytes + column * static_cast<int>(sizeof(float)));
      store_staged<Pre, float>(a, walk.at.batch, walk.at.group_or_split, walk.k_block * a.k_block + column, position,
                               to + swizzled(offset, a.row_bytes), word);
    }
  }
}

template <bool Shifted, class Pre, class Element, int Channels, class Arguments>
__device__ __forceinline__ void transpose_input(const Arguments& a, std::uint32_t stages, std::uint32_t raw,
                                                DenseShared& shared, int thread) {
  constexpr int kTileBytes = kRawChannels<Element> * kRawWords<Element, Shifted> * kWordBytes;
  const int warp = thread / 32, lane = thread % 32;
  raw += warp * raw_ring_bytes(Shifted);
  RawWalk<Element, Channels> ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // indices in the ring
  const auto copy_tile = [&] {
    while (ahead.exists(a) && !ahead.is_in_stage(a)) ahead.advance_stage(a);
    if (ahead.exists(a)) {
      copy_raw_tile<Element, Shifted>(a, ahead, raw + ahead_tile * kTileBytes);
      ahead.advance();
      if (++ahead_tile == kRawTiles) ahead_tile = 0;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  };
  for (int i = 0; i < kRawTiles - 1; ++i) copy_tile();

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
    walk.set_position(a, sizeof(Element) == 2 ? lane % 16 : 0);
    asm volatile("cp.async.wait_group %0;" : : "n"(kRawTiles - 2) : "memory");
    __syncwarp();  // all lanes' copies have arrived, and all have read the previous tile, whose stage is reused
    copy_tile();
    const std::uint32_t from = raw + tile * kTileBytes, to = stages + state.stage * a.input_stage_bytes();
    if constexpr (sizeof(Element) == 2) {
      transpose_halves<Shifted, Pre>(a, walk, from, to);
    } else {
      transpose_singles<Shifted, Pre>(a, walk, from, to);
    }
    if (++tile == kRawTiles) tile = 0;
    walk.advance();
  }
}

}  // namespace sluice
