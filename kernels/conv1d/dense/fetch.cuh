// The fetching warps of the dense kernel: stages of the input, and weights.
//
//   what lies side by side     how it comes into a stage's rows of channels
//   channels                   16 bytes by 16 bytes, asynchronously; `pre` on them where they have come to lie
//   positions                  asynchronously into raw tiles, from there as matrices of 8 x 8, transposed; what does
//   not
//                              begin at 16 bytes is moved there in between
//   neither                    8 positions by 8 channels a thread at a time, through registers
#pragma once

#include "kernels/common/edges.cuh"
#include "kernels/conv1d/dense/arguments.cuh"
#include "kernels/mma/matrices.cuh"

namespace sluice {

// The first row and channel of what is fetched at once.
struct DenseSource {
  int batch, channel, position;
};

// `pre` on pairs of channels; padding stays zero. Pair s is `channels[s]` and the next at `positions[s]`.
template <class Pre, class Element>
__device__ __forceinline__ void apply_pre(const DenseArguments& a, int batch, const int (&channels)[4],
                                          const int (&positions)[4], std::uint32_t (&pairs)[4]) {
  float values[8];
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const float2 pair = Pair<Element>::load(pairs[s]);
    values[2 * s] = pair.x, values[2 * s + 1] = pair.y;
  }
  const auto existing = [&](int s) {
    return positions[s] >= 0 && positions[s] < a.length ? a.input_channels - channels[s] : 0;
  };
  const auto place_of = [&](const long long* strides, int s) {
    const long long offset = batch * strides[0] + channels[s] * strides[1] + positions[s] * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = min_of(2, existing(s))};
  };
  run_chain<Pre, 2, 4>(a.pre, place_of, values);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const std::uint32_t changed = Pair<Element>::store(values[2 * s], values[2 * s + 1]);
    pairs[s] = existing(s) >= 2 ? changed : existing(s) == 1 ? (changed & 0xffff) : pairs[s];
  }
}

// A stage's words are all in shared memory, and the tensor cores may read them: they do so through the unit that bulk
// copies write through.
__device__ __forceinline__ void hand_over(DenseShared& shared, int stage) {
  fence_before_bulk_copy();
  arrive(shared.input_full + stage);
}

// The first `bytes` of 16 from global to shared memory, and zeros, asynchronously.
__device__ __forceinline__ void copy_piece(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

// A stage that is on its way: where its rows come from.
struct PendingStage {
  int stage = -1, batch, channel, position;
};

// All stages by asynchronous copies: channels lie side by side. `pre` changes a thread's own pieces.
template <class Pre, class Element, int Channels>
__device__ __forceinline__ void copy_input(const DenseArguments& a, std::uint32_t stages, DenseShared& shared,
                                           int thread) {
  const int shift = 31 - __clz(a.row_bytes / 16);  // of a row's pieces
  const int piece = thread & ((1 << shift) - 1), first_row = thread >> shift, row_step = kDenseFetchThreads >> shift;
  const auto place_of = [&](int stage, int row) {
    return stages + stage * a.input_stage_bytes() +
           swizzled(static_cast<std::uint32_t>(row * a.row_bytes + piece * 16), a.row_bytes);
  };
  RingPlace place;
  bool used = false;
  PendingStage pending;
  const auto finish_pending = [&] {
    if (pending.stage < 0) return;
    if (!Pre{a.pre}.empty()) {
#pragma unroll 1
      for (int row = first_row; row < a.stage_rows; row += row_step) {
        const int position = pending.position + row, channel = pending.channel;
        if (position < 0 || position >= a.length) continue;
        Word word = load_shared_word(place_of(pending.stage, row));
        apply_pre<Pre, Element>(a, pending.batch, {channel, channel + 2, channel + 4, channel + 6},
                                {position, position, position, position}, word.lanes);
        store_shared_word(place_of(pending.stage, row), word);
      }
    }
    hand_over(shared, pending.stage);
    pending.stage = -1;
  };
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile<Channels>(a, t);
    for (int c = 0; c < a.chunks; ++c) {
      if (used && !has_ended(shared.input_empty + place.stage, place.parity ^ 1)) {
        asm volatile("cp.async.wait_all;" : : : "memory");
        finish_pending();
        wait_for_phase(shared.input_empty + place.stage, place.parity ^ 1);
      }
      const int channel = c * a.chunk() + piece * 8, start = tile.position - a.padding - a.shift;
      const auto* const from = a.input.as<const Element>() + tile.batch * a.input.strides[0] + channel;
      const int length = channel < a.input_channels ? a.length : 0;
      for (int row = first_row; row < a.stage_rows; row += row_step) {
        const int position = start + row;
        const bool exists = position >= 0 && position < length;
        copy_piece(place_of(place.stage, row), exists ? from + position * a.input.strides[2] : a.input.data,
                   exists ? 16 : 0);
      }
      asm volatile("cp.async.commit_group;" : : : "memory");
      asm volatile("cp.async.wait_group 1;" : : : "memory");
      finish_pending();
      pending = {place.stage, tile.batch, channel, start};
      place.advance(a.input_stages);
      used = used || place.stage == 0;
    }
  }
  asm volatile("cp.async.wait_all;" : : : "memory");
  finish_pending();
}

// Eight positions of eight channels, as words of channels; zeros where the input has none.
template <class Element>
__device__ __forceinline__ void load_block(const DenseArguments& a, const DenseSource& at, Word (&words)[8]) {
  const auto* const from = a.input.as<const Element>() + at.batch * a.input.strides[0] +
                           at.channel * a.input.strides[1] + at.position * a.input.strides[2];
  const int positions = a.length - at.position, channels = a.input_channels - at.channel;
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    const bool exists = channels > 0 && p < positions && p + at.position >= 0;
    words[p] = gather_elements<Element>([&](int c) {
      return exists && c < channels ? from[c * a.input.strides[1] + p * a.input.strides[2]] : Element(0.0f);
    });
  }
}

// All stages through registers.
template <class Pre, class Element, int Channels>
__device__ __forceinline__ void gather_input(const DenseArguments& a, std::uint32_t stages, DenseShared& shared,
                                             int thread) {
  const int pieces = a.row_bytes / 16, shift = 31 - __clz(pieces), blocks = a.stage_rows / 8 * pieces;
  RingPlace place;
  bool used = false;
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const DenseTile tile = dense_tile<Channels>(a, t);
    for (int c = 0; c < a.chunks; ++c) {
      if (used) wait_for_phase(shared.input_empty + place.stage, place.parity ^ 1);
      const std::uint32_t to = stages + place.stage * a.input_stage_bytes();
      for (int block = thread; block < blocks; block += kDenseFetchThreads) {
        const int row = (block >> shift) * 8, piece = block & (pieces - 1);
        const DenseSource at = {tile.batch, c * a.chunk() + piece * 8, tile.position - a.padding - a.shift + row};
        Word words[8];
        load_block<Element>(a, at, words);
#pragma unroll
        for (int p = 0; p < 8; ++p) {
          const int position = at.position + p;
          if (!Pre{a.pre}.empty()) {
            apply_pre<Pre, Element>(a, at.batch, {at.channel, at.channel + 2, at.channel + 4, at.channel + 6},
                                    {position, position, position, position}, words[p].lanes);
          }
          const auto offset = static_cast<std::uint32_t>((row + p) * a.row_bytes + piece * 16);
          store_shared_word(to + swizzled(offset, a.row_bytes), words[p]);
        }
      }
      hand_over(shared, place.stage);
      place.advance(a.input_stages);
      used = used || place.stage == 0;
    }
  }
}

// What a fetching warp takes at a time: kRawChannels channels of 16 positions, of those 16s of a stage that are its
// own.
template <int Channels>
struct RawWalk {
  int tile = blockIdx.x, chunk = 0, row, channel = 0;  // the last two: of the stage's first ones
  DenseTile at;

  __device__ __forceinline__ RawWalk(const DenseArguments& a, int warp)
      : row(warp * 16), at(dense_tile<Channels>(a, tile)) {}
  __device__ __forceinline__ bool exists(const DenseArguments& a) const { return tile < a.tiles; }
  __device__ __forceinline__ bool begins_stage(int warp) const { return row == warp * 16 && channel == 0; }
  // To the next; whether a stage ends.
  __device__ __forceinline__ bool advance(const DenseArguments& a, int warp) {
    channel += kRawChannels;
    if (channel < a.chunk()) return false;
    channel = 0, row += kDenseFetchThreads / 32 * 16;
    if (row < a.stage_rows) return false;
    row = warp * 16;
    if (++chunk < a.chunks) return true;
    chunk = 0, tile += gridDim.x;
    if (exists(a)) at = dense_tile<Channels>(a, tile);
    return true;
  }
};

// A fetching warp's ring of raw tiles. `Shifted`: rows begin anywhere, so that 16 positions lie in up to three words;
// the ring is followed by a tile as it would be otherwise.
template <bool Shifted>
struct RawRing {
  static constexpr int kWords = Shifted ? 3 : 2;
  static constexpr int kTileBytes = kRawChannels * kWords * kWordBytes;
  static constexpr int kTiles = Shifted ? 4 : 8;
  static constexpr int kMovedBytes = Shifted ? kRawChannels * 2 * kWordBytes : 0;
  static_assert(kTiles * kTileBytes + kMovedBytes <= kRawRingBytes);
};

// Where the words of a channel's 16 positions begin that lie `Shifted`: elements ahead of its first position.
template <class Element>
__device__ __forceinline__ int elements_ahead(const DenseArguments& a, int batch, int channel, int position) {
  const auto first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(a.input.data) / sizeof(Element));
  const auto stride = [&](int d) { return static_cast<unsigned>(a.input.strides[d]); };
  return static_cast<int>((first + batch * stride(0) + channel * stride(1) + position) % kWordElements<Element>);
}

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

// All stages by way of raw tiles: each warp has a ring of its own.
//
//   raw ring   [ 16 channels x 16 positions | .. ]   16-byte words, asynchronously, all but one tile ahead
//                    |  `Shifted`: moved to where words begin
//                    |  four matrices of 8 channels x 8 positions, transposed; `pre`
//   stage      rows of channels, one a position
template <bool Shifted, class Pre, class Element, int Channels>
__device__ __forceinline__ void transpose_input(const DenseArguments& a, std::uint32_t stages, std::uint32_t raw,
                                                DenseShared& shared, int thread) {
  using Ring = RawRing<Shifted>;
  const int warp = thread / 32, lane = thread % 32;
  raw += warp * kRawRingBytes;
  // Lane l copies vector l / 16 of channel l % 16. Where channels' bit 2 is set, vectors change places: so eight
  // channels' rows lie in different banks. As rows of matrices: channels l % 8 and 8 on, both vectors.
  const auto place_of = [](int channel, int vector) { return channel * 32 + (vector ^ (channel >> 2 & 1)) * 16; };
  const int own_channel = lane % 16, vector = lane / 16;
  const std::uint32_t own = place_of(own_channel, vector);
  const int matrix_channels = lane / 8 % 2 * 8, matrix_positions = lane / 16 * 8;
  const std::uint32_t read = place_of(matrix_channels + lane % 8, lane / 16);
  RawWalk<Channels> ahead(a, warp), walk(a, warp);
  int ahead_tile = 0, tile = 0;  // of the ring
  const auto first_position = [&](const RawWalk<Channels>& at) {
    return at.at.position - a.padding - a.shift + at.row;
  };
  const auto copy_tile = [&] {
    if (ahead.exists(a)) {
      const int channel = ahead.chunk * a.chunk() + ahead.channel + own_channel, position = first_position(ahead);
      const auto* const row =
          a.input.as<const Element>() + ahead.at.batch * a.input.strides[0] + channel * a.input.strides[1];
      const int length = channel < a.input_channels ? a.length : 0;
      const std::uint32_t to = raw + ahead_tile * Ring::kTileBytes;
      if constexpr (Shifted) {
        const int first = position - elements_ahead<Element>(a, ahead.at.batch, channel, position);
        for (int w = vector; w < Ring::kWords; w += 2) {
          const int at = first + w * 8, left = at + 8 > 0 ? min_of(8, length - at) : 0;
          copy_piece(to + (own_channel * Ring::kWords + w) * kWordBytes, left > 0 ? row + at : a.input.data,
                     left > 0 ? left * static_cast<int>(sizeof(Element)) : 0);
        }
      } else {
        // Vectors begin at multiples of eight positions, and the last one ends with the input.
        const int at = position + vector * 8;
        const bool exists = at >= 0 && at < length;
        copy_piece(to + own, exists ? row + at : a.input.data, exists ? 16 : 0);
      }
      ahead.advance(a, warp);
      if (++ahead_tile == Ring::kTiles) ahead_tile = 0;
    }
    asm volatile("cp.async.commit_group;" : : : "memory");
  };
  for (int i = 0; i < Ring::kTiles - 1; ++i) copy_tile();

  RingPlace place;
  bool used = false;
  while (walk.exists(a)) {
    if (walk.begins_stage(warp) && used) wait_for_phase(shared.input_empty + place.stage, place.parity ^ 1);
    asm volatile("cp.async.wait_group %0;" : : "n"(Ring::kTiles - 2) : "memory");
    __syncwarp();  // all lanes' copies are there, and all have read the tile before, whose place the next one takes
    copy_tile();
    std::uint32_t from = raw + tile * Ring::kTileBytes;
    if constexpr (Shifted) {
      const int channel = walk.chunk * a.chunk() + walk.channel + own_channel, position = first_position(walk);
      const Word word =
          realigned<Element>(from + (own_channel * Ring::kWords + vector) * kWordBytes,
                             elements_ahead<Element>(a, walk.at.batch, channel, position), position + vector * 8);
      from = raw + Ring::kTiles * Ring::kTileBytes;
      store_shared_word(from + own, word);
      __syncwarp();
    }
    std::uint32_t matrices[4];
    load_transposed(from + read, matrices);
    if (!Pre{a.pre}.empty()) {
      const int channel = walk.chunk * a.chunk() + walk.channel + lane % 4 * 2;
      const int position = first_position(walk) + lane / 4;
      apply_pre<Pre, Element>(a, walk.at.batch, {channel, channel + 8, channel, channel + 8},
                              {position, position, position + 8, position + 8}, matrices);
    }
    const int row = walk.row + matrix_positions + lane % 8;
    if (walk.row < a.stage_rows) {  // else a warp without rows of its own in so short a stage
      const int column = walk.channel + matrix_channels;
      const std::uint32_t offset = static_cast<std::uint32_t>(row * a.row_bytes + column * 2);
      store_matrices(stages + place.stage * a.input_stage_bytes() + swizzled(offset, a.row_bytes), matrices);
    }
    if (++tile == Ring::kTiles) tile = 0;
    if (walk.advance(a, warp)) {
      hand_over(shared, place.stage);
      place.advance(a.input_stages);
      used = used || place.stage == 0;
    }
  }
}

// The input of all the block's tiles, by kDenseFetchThreads threads.
template <class Pre, class Element, int Channels>
__device__ __forceinline__ void fetch_input(const DenseArguments& a, std::uint32_t stages, std::uint32_t raw,
                                            DenseShared& shared, int thread) {
  switch (a.fetch) {
    case DenseFetch::channels: copy_input<Pre, Element, Channels>(a, stages, shared, thread); break;
    case DenseFetch::positions: transpose_input<false, Pre, Element, Channels>(a, stages, raw, shared, thread); break;
    case DenseFetch::shifted: transpose_input<true, Pre, Element, Channels>(a, stages, raw, shared, thread); break;
    case DenseFetch::elements: gather_input<Pre, Element, Channels>(a, stages, shared, thread); break;
  }
}

// The weights of all the block's tiles, by one thread.
template <int Channels>
__device__ __forceinline__ void fetch_weights(const DenseArguments& a, std::uint32_t stages, DenseShared& shared) {
  RingPlace place;
  bool used = false;
  const std::size_t tap_bytes = static_cast<std::size_t>(a.packed_rows) * a.row_bytes;
  for (int t = blockIdx.x; t < a.tiles; t += gridDim.x) {
    const int channel = dense_tile<Channels>(a, t).channel;
    const std::uint32_t bytes = min_of(Channels, a.packed_rows - channel) * a.row_bytes;
    for (int c = 0; c < a.chunks; ++c) {
      for (int k = 0; k < a.taps; k += a.stage_taps) {
        if (used) wait_for_phase(shared.weight_empty + place.stage, place.parity ^ 1);
        const int taps = min_of(a.stage_taps, a.taps - k);
        std::uint64_t* const full = shared.weight_full + place.stage;
        arrive_expecting(full, bytes * taps);
        for (int i = 0; i < taps; ++i) {
          const char* const from =
              a.packed + (static_cast<std::size_t>(c) * a.taps + k + i) * tap_bytes + channel * a.row_bytes;
          copy_bulk(stages + place.stage * a.weight_stage_bytes(Channels) + i * Channels * a.row_bytes, from, bytes,
                    full);
        }
        place.advance(a.weight_stages);
        used = used || place.stage == 0;
      }
    }
    if (a.resident) return;
  }
}

}  // namespace sluice
