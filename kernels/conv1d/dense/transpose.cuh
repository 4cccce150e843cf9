// Input whose positions lie side by side, on its way to rows of channels. Each fetching warp has a ring of its own:
//
//   raw ring   [ 16 channels x 16 positions | .. ]   16-byte words, asynchronously, all but one tile ahead
//                    |  `Shifted`: moved to where words begin
//                    |  four matrices of 8 channels x 8 positions, transposed; `pre`
//   stage      rows of channels, one a position
#pragma once

#include "kernels/conv1d/dense/input.cuh"
#include "kernels/mma/matrices.cuh"

namespace sluice {

// A warp's raw tiles in their order: of a stage's rows every seventh 16, channels first. The sevenths go on from stage to
// stage, so that all warps have as many.
//
// A warp has few instructions in flight, so what a tile costs is how many it takes: addresses are reckoned once a row.
template <class Element, int Channels>
struct RawWalk {
  static constexpr int kRowStep = kDenseFetchThreads / 32 * kRawPositions;
  int tile = blockIdx.x, chunk = 0, row, channel = 0;  // the last two: of the stage's first ones
  DenseTile at;
  int position = 0;               // of the row's first
  int channels_left = 0;          // from the lane's channel to the last one
  const Element* from = nullptr;  // position 0 of the lane's channel

  __device__ __forceinline__ RawWalk(const DenseArguments& a, int warp)
      : row(warp * kRawPositions), at(dense_tile<Channels>(a, tile)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  __device__ __forceinline__ bool is_in_stage(const DenseArguments& a) const { return row < a.stage_rows; }
  __device__ __forceinline__ bool begins_row() const { return channel == 0; }

  // `lane_channel`: of 16.
  __device__ __forceinline__ void set_row(const DenseArguments& a, int lane_channel) {
    const int first = chunk * a.chunk() + lane_channel;
    position = at.position - a.padding - a.shift + row;
    channels_left = a.input_channels - first;
    from = a.input.as<const Element>() + at.batch * a.input.strides[0] + first * a.input.strides[1];
  }
  __device__ __forceinline__ void advance(const DenseArguments& a) {
    channel += kRawChannels, channels_left -= kRawChannels;
    from += kRawChannels * a.input.strides[1];
    if (channel >= a.chunk()) channel = 0, row += kRowStep;
  }
  __device__ __forceinline__ void advance_stage(const DenseArguments& a) {
    row -= a.stage_rows;
    if (++chunk < a.chunks) return;
    chunk = 0, tile += gridDim.x;
    if (exists(a)) at = dense_tile<Channels>(a, tile);
  }
  // Elements from the word that the row begins in to its first position.
  __device__ __forceinline__ int ahead() const {
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(from) / sizeof(Element) + position) %
                            kWordElements<Element>);
  }
};

// `Shifted`: rows begin anywhere, so that 16 positions lie in up to three words; the ring is followed by a tile as it
// would be otherwise.
template <bool Shifted>
struct RawRing {
  static constexpr int kWords = Shifted ? 3 : 2;
  static constexpr int kTileBytes = kRawChannels * kWords * kWordBytes;
  static constexpr int kTiles = Shifted ? 4 : 8;
  static constexpr int kMovedBytes = Shifted ? kRawChannels * 2 * kWordBytes : 0;
  static_assert(kTiles * kTileBytes + kMovedBytes <= kRawRingBytes);
};

// Eight positions out of the words that they lie in; zeros for those ahead of the input.
template <class Element>
__device__ __forceinline__ Word realigned(std::uint32_t words, int ahead, int position) {
  Word word = shift_words(load_shared_word(words), load_shared_word(words + kWordBytes),
                          ahead * static_cast<int>(sizeof(Element)));
  if (position < 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word.lanes[i] &= (position + 2 * i < 0 ? 0u : 0xffffu) | (position + 2 * i + 1 < 0 ? 0u : 0xffff0000u);
    }
  }
  return word;
}

template <bool Shifted, class Pre, class Element, int Channels>
__device__ __forceinline__ void transpose_input(const DenseArguments& a, std::uint32_t stages, std::uint32_t raw,
                                                DenseShared& shared, int thread) {
  using Ring = RawRing<Shifted>;
  using Walk = RawWalk<Element, Channels>;
  const int warp = thread / 32, lane = thread % 32;
  raw += warp * kRawRingBytes;
  // Lane l copies vector l / 16 of channel l % 16. Where channels' bit 2 is set, vectors change places: so eight
  // channels' rows lie in different banks. As rows of matrices: channels l % 8 and 8 on, both vectors.
  const auto place_of = [](int channel, int vector) { return channel * 32 + (vector ^ (channel >> 2 & 1)) * 16; };
  const int own_channel = lane % 16, vector = lane / 16;
  const std::uint32_t own = place_of(own_channel, vector);
  const int matrix_channels = lane / 8 % 2 * 8, matrix_position = lane / 16 * 8 + lane % 8;
  const std::uint32_t read = place_of(matrix_channels + lane % 8, lane / 16);

  Walk ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // of the ring
  const auto copy_tile = [&] {
    while (ahead.exists(a) && !ahead.is_in_stage(a)) ahead.advance_stage(a);
    if (ahead.exists(a)) {
      if (ahead.begins_row()) ahead.set_row(a, own_channel);
      const int length = ahead.channels_left > 0 ? a.length : 0;
      const std::uint32_t to = raw + ahead_tile * Ring::kTileBytes;
      if constexpr (Shifted) {
        const int first = ahead.position - ahead.ahead();
        for (int w = vector; w < Ring::kWords; w += 2) {
          const int at = first + w * 8, left = at + 8 > 0 ? min_of(8, length - at) : 0;
          copy_piece(to + (own_channel * Ring::kWords + w) * kWordBytes, left > 0 ? ahead.from + at : a.input.data,
                     left > 0 ? left * static_cast<int>(sizeof(Element)) : 0);
        }
      } else {
        // Vectors begin at multiples of eight positions, and the last one ends with the input.
        const int at = ahead.position + vector * 8;
        const bool exists = at >= 0 && at < length;
        copy_piece(to + own, exists ? ahead.from + at : a.input.data, exists ? 16 : 0);
      }
      ahead.advance(a);
      if (++ahead_tile == Ring::kTiles) ahead_tile = 0;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  };
  for (int i = 0; i < Ring::kTiles - 1; ++i) copy_tile();

  RingPlace place;
  bool used = false;
  const auto await_stage = [&] {
    if (used) wait_for_phase(shared.input_empty + place.stage, place.parity ^ 1);
  };
  std::uint32_t to = 0, turned = 0;  // the lane's row of the stage, and how its pieces are permuted
  while (walk.exists(a)) {
    if (!walk.is_in_stage(a)) {
      hand_over(shared, place.stage);
      place.advance(a.input_stages);
      used = used || place.stage == 0;
      walk.advance_stage(a);
      if (walk.exists(a)) await_stage();
      continue;
    }
    if (walk.begins_row()) {
      if (Shifted || !Pre{a.pre}.empty()) walk.set_row(a, own_channel);
      const auto offset = static_cast<std::uint32_t>((walk.row + matrix_position) * a.row_bytes);
      to = stages + place.stage * a.input_stage_bytes() + offset;
      turned = swizzled(offset, a.row_bytes) - offset;
    }
    asm volatile("cp.async.wait_group %0;" : : "n"(Ring::kTiles - 2) : "memory");
    __syncwarp();  // all lanes' copies are there, and all have read the tile before, whose place the next one takes
    copy_tile();
    std::uint32_t from = raw + tile * Ring::kTileBytes;
    if constexpr (Shifted) {
      const Word word = realigned<Element>(from + (own_channel * Ring::kWords + vector) * kWordBytes, walk.ahead(),
                                           walk.position + vector * 8);
      from = raw + Ring::kTiles * Ring::kTileBytes;
      store_shared_word(from + own, word);
      __syncwarp();
    }
    std::uint32_t matrices[4];
    load_transposed(from + read, matrices);
    if (!Pre{a.pre}.empty()) {
      const int channel = walk.chunk * a.chunk() + walk.channel + lane % 4 * 2, position = walk.position + lane / 4;
      apply_pre<Pre, Element>(a, walk.at.batch, {channel, channel + 8, channel, channel + 8},
                              {position, position, position + 8, position + 8}, matrices);
    }
    store_matrices(to + (static_cast<std::uint32_t>((walk.channel + matrix_channels) * 2) ^ turned), matrices);
    if (++tile == Ring::kTiles) tile = 0;
    walk.advance(a);
  }
}

}  // namespace sluice
