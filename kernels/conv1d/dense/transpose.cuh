// Input whose positions lie side by side, on its way to rows of channels. Each fetching warp has a ring of its own:
//
//   raw ring   [ 16 channels x 64 positions | .. ]   16-byte words, asynchronously, all but one tile ahead
//                    |  `Shifted`: moved to where words begin, 16 positions at a time
//                    |  four matrices of 8 channels x 8 positions, transposed; `pre`
//   stage      rows of channels, one a position
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
  int row = 0, channel = 0;       // of the stage, the unit's first
  int position = 0;               // of the input, the row's
  int channels_left = 0;          // from the lane's channel to the last one
  const Element* from = nullptr;  // position 0 of the lane's channel

  __device__ __forceinline__ RawWalk(const DenseArguments& a, int warp)
      : unit(warp), at(dense_tile<Channels>(a, tile)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  __device__ __forceinline__ bool is_in_stage(const DenseArguments& a) const { return unit < units(a); }
  // `lane_channel`: of the unit's.
  __device__ __forceinline__ void set_places(const DenseArguments& a, int lane_channel) {
    const int columns = a.chunk() / kRawChannels;  // 1, 2 or 4
    channel = (unit & (columns - 1)) * kRawChannels;
    row = (unit >> (columns >> 1)) * kRawPositions;
    position = at.position - a.padding - a.shift + row;
    const int first = chunk * a.chunk() + channel + lane_channel;
    channels_left = a.input_channels - first;
    from = a.input.as<const Element>() + at.batch * a.input.strides[0] + first * a.input.strides[1];
  }
  __device__ __forceinline__ void advance() { unit += kDenseFetchThreads / 32; }
  __device__ __forceinline__ void advance_stage(const DenseArguments& a) {
    unit -= units(a);
    if (++chunk < a.chunks) return;
    chunk = 0, tile += gridDim.x;
    if (exists(a)) at = dense_tile<Channels>(a, tile);
  }

 private:
  __device__ __forceinline__ static int units(const DenseArguments& a) {
    return ceil_div(a.stage_rows, kRawPositions) * (a.chunk() / kRawChannels);
  }
};

// Elements from the word that a channel's `position` lies in to it.
template <class Element>
__device__ __forceinline__ int elements_ahead(const Element* channel, int position) {
  return static_cast<int>((reinterpret_cast<std::uintptr_t>(channel) / sizeof(Element) + position) %
                          kWordElements<Element>);
}

// Eight positions out of the words that they lie in.
template <class Element>
__device__ __forceinline__ Word realigned(std::uint32_t words, int ahead) {
  return shift_words(load_shared_word(words), load_shared_word(words + kWordBytes),
                     ahead * static_cast<int>(sizeof(Element)));
}

template <bool Shifted, class Pre, class Element, int Channels>
__device__ __forceinline__ void transpose_input(const DenseArguments& a, std::uint32_t stages, std::uint32_t raw,
                                                DenseShared& shared, int thread) {
  using Walk = RawWalk<Element, Channels>;
  constexpr int kWords = raw_words(Shifted), kTileBytes = kRawChannels * kWords * kWordBytes;
  constexpr int kElements = kWordElements<Element>;
  const int warp = thread / 32, lane = thread % 32;
  raw += warp * raw_ring_bytes(Shifted);
  const std::uint32_t moved = raw + kRawTiles * kTileBytes;
  // Of raw tiles a row of words is a channel. Where there are eight, they change places, so that those of eight
  // channels lie in different banks.
  const auto place_of = [](int channel, int word) {
    return static_cast<std::uint32_t>((channel * kWords + (Shifted ? word : word ^ (channel & 7))) * kWordBytes);
  };
  // Of 16 positions that are moved: where channels' bit 2 is set, their two words change places.
  const auto moved_place = [](int channel, int word) {
    return static_cast<std::uint32_t>((channel * 2 + (word ^ (channel >> 2 & 1))) * kWordBytes);
  };

  Walk ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // of the ring
  // Whole words end with the input, where rows begin with words. Else the first and the last of a row are gathered: not
  // even a byte of what lies around it is read.
  const auto copy_word = [&](std::uint32_t to, const Element* channel, int channels_left, int word) {
    int first = ahead.position + word * kElements;
    if (Shifted) first -= elements_ahead(channel, ahead.position);
    const int length = channels_left > 0 ? a.length : 0;
    const bool is_whole = first >= 0 && first + (Shifted ? kElements : 1) <= length;
    if (!Shifted || is_whole) {
      copy_piece(to, is_whole ? channel + first : a.input.data, is_whole ? kWordBytes : 0);
    } else {
      // One after another, for there are few registers and few such words.
      auto* const elements = static_cast<Element*>(__cvta_shared_to_generic(to));
#pragma unroll 1
      for (int i = 0; i < kElements; ++i) {
        const int at = first + i;
        elements[i] = at >= 0 && at < length ? channel[at] : Element(0.0f);
      }
    }
  };
  // Lane l copies word l % 8 of channels l / 8, 4 + l / 8 ..; the ninth words are those of 16 lanes.
  const auto copy_tile = [&] {
    while (ahead.exists(a) && !ahead.is_in_stage(a)) ahead.advance_stage(a);
    if (ahead.exists(a)) {
      ahead.set_places(a, lane / 8);
      const std::uint32_t to = raw + ahead_tile * kTileBytes;
      const int word = lane % 8;
      if (Shifted || ahead.row + word * kElements < a.stage_rows) {
#pragma unroll(Shifted ? 1 : 4)
        for (int c = 0; c < kRawChannels; c += 4) {
          copy_word(to + place_of(c + lane / 8, word), ahead.from + c * a.input.strides[1], ahead.channels_left - c,
                    word);
        }
      }
      if (Shifted && lane < kRawChannels) {
        const int c = lane - lane / 8;
        copy_word(to + place_of(lane, 8), ahead.from + c * a.input.strides[1], ahead.channels_left - c, 8);
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
    const int words_ahead = Shifted ? elements_ahead(walk.from, walk.position) : 0;
#pragma unroll
    for (int p = 0; p < kRawPositions; p += 16) {
      if (walk.row + p >= a.stage_rows) break;
      std::uint32_t matrices[4];
      const int word = p / kElements + matrix_word;
      if constexpr (Shifted) {
        const Word aligned = realigned<Element>(from + place_of(matrix_channel, word), words_ahead);
        __syncwarp();  // the 16 before are read
        store_shared_word(moved + moved_place(matrix_channel, matrix_word), aligned);
        __syncwarp();
        load_transposed(moved + moved_place(matrix_channel, matrix_word), matrices);
      } else {
        load_transposed(from + place_of(matrix_channel, word), matrices);
      }
      if (!Pre{a.pre}.empty()) {
        const int channel = walk.chunk * a.chunk() + walk.channel + lane % 4 * 2;
        const int position = walk.position + p + lane / 4;
        apply_pre<Pre, Element>(a, walk.at.batch, {channel, channel + 8, channel, channel + 8},
                                {position, position, position + 8, position + 8}, matrices);
      }
      const int row = walk.row + p + lane / 16 * 8 + lane % 8, column = walk.channel + lane / 8 % 2 * 8;
      const auto offset = static_cast<std::uint32_t>(row * a.row_bytes + column * 2);
      store_matrices(to + swizzled(offset, a.row_bytes), matrices);
    }
    if (++tile == kRawTiles) tile = 0;
    walk.advance();
  }
}

}  // namespace sluice
