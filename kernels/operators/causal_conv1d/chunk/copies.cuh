// How the weights and the window of a block come into shared memory: in stages, each with a k-block of the tile's
// window and of some taps' weights, on whose barrier its copies arrive.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/arguments.cuh"
#include "kernels/shared/pipeline/copy_groups.cuh"
#include "kernels/shared/pipeline/mbarrier.cuh"

namespace sluice {

// A block's work.
struct ChunkItem {
  int tile, split;
  int first_row, first_frame;  // row and frame of the first column
  int first_channel;           // row of the weight
  int first_k_block, stages;   // stages of the split

  __device__ explicit ChunkItem(const ChunkArguments& a) {
    const auto index = blockIdx.x;
    tile = static_cast<int>(a.n.by_splits.quotient_of_31_bits(index));
    split = static_cast<int>(index) - tile * a.n.splits;
    const int columns = static_cast<int>(a.n.by_channel_tiles.quotient_of_31_bits(tile));
    first_channel = (tile - columns * a.n.channel_tiles) * kChunkChannels;
    const int rows = static_cast<int>(a.n.by_frame_tiles.quotient_of_31_bits(columns));
    first_row = rows * a.n.tile_rows;
    first_frame = (columns - rows * static_cast<int>(a.n.by_frame_tiles.divisor)) * a.n.tile_frames;
    first_k_block = split * a.n.split_k_blocks;
    stages = min_of(a.n.split_k_blocks, a.n.k_blocks - first_k_block) * a.n.tap_groups;
  }
};

// Where the parts of a stage are, in bytes. The weights are [tap][part][row].
struct StageLayout {
  int low_weights, tap, window, low_window;

  __device__ __forceinline__ explicit StageLayout(const ChunkArguments& a)
      : low_weights(kChunkChannels * a.n.row_bytes),
        tap(low_weights * a.n.parts),
        window(a.n.stage_taps * tap),
        low_window(a.n.tile_rows * a.n.stride * a.n.tile_places * a.n.row_bytes) {}
};

// A stage of a split: where its parts come from, and its place in shared memory.
struct ChunkStage {
  const char *weights, *window;
  int first_tap = 0;
  int buffer = 0;
  int parity = 0;  // parity of the barrier's phase

  __device__ __forceinline__ ChunkStage(const ChunkArguments& a, const ChunkItem& item)
      : weights(a.n.packed + item.first_k_block * a.n.block + item.first_channel * a.n.row_bytes),
        window(a.n.window + item.first_k_block * a.n.slab +
               (static_cast<long long>(item.first_row) * a.n.stride * a.n.places + item.first_frame) * a.n.row_bytes) {}
  __device__ __forceinline__ int taps(const ChunkArguments& a) const {
    return min_of(a.n.stage_taps, a.n.taps - first_tap);
  }
  __device__ __forceinline__ int start(const ChunkArguments& a) const { return buffer * a.n.stage_bytes; }
  __device__ __forceinline__ void advance(const ChunkArguments& a) {
    weights += taps(a) * a.n.parts * a.n.tap;
    first_tap += a.n.stage_taps;
    if (first_tap >= a.n.taps) first_tap = 0, window += a.n.slab;
    if (++buffer == a.n.stages) buffer = 0, parity ^= 1;
  }
};

// Lines of equal length, to be copied.
struct ChunkLines {
  int count, bytes, to_step;
  long long from_step;
};

// A line is a bulk copy. Where there are none, a warp copies a line's words; all warps share a single line.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kCopiesBulk = true;
#else
inline constexpr bool kCopiesBulk = false;
#endif

// The copies of a block's stages. Some warps share a stage's.
struct ChunkCopies {
  StageLayout layout;
  ChunkLines window;
  int weight_bytes;  // bytes of a line of weights
  std::uint32_t memory;
  std::uint64_t* full;  // barriers of the stages

  __device__ __forceinline__ ChunkCopies(const ChunkArguments& a, const ChunkItem& item, char* stages,
                                         std::uint64_t* barriers)
      : layout(a), memory(shared_address(stages)), full(barriers) {
    const int line = a.n.places * a.n.row_bytes, lines = min_of(a.n.tile_rows, a.n.rows - item.first_row) * a.n.stride;
    // Places that do not exist belong to columns that do not. Whole rows are contiguous.
    window = {lines, min_of(a.n.tile_places, a.n.places - item.first_frame) * a.n.row_bytes,
              a.n.tile_places * a.n.row_bytes, line};
    if (a.n.tile_places == a.n.places) window = {1, lines * line, 0, 0};
    weight_bytes = min_of(kChunkChannels, a.n.weight_rows - item.first_channel) * a.n.row_bytes;
  }

  // By `warps` warps, of which this is the `warp`-th.
  __device__ __forceinline__ void copy(const ChunkLines& lines, const char* from, int to, std::uint64_t* barrier,
                                       int warp, int warps) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if constexpr (kCopiesBulk) {
      if (lane > 0) return;
#pragma unroll 1
      for (int line = warp; line < lines.count; line += warps) {
        copy_bulk(memory + to + line * lines.to_step, from + line * lines.from_step, lines.bytes, barrier);
      }
    } else {
      const bool single = lines.count == 1;
      const int first = single ? warp * 32 + lane : lane, threads = single ? warps * 32 : 32;
#pragma unroll 1
      for (int line = single ? 0 : warp; line < lines.count; line += warps) {
#pragma unroll 2
        for (int i = first * kWordBytes; i < lines.bytes; i += threads * kWordBytes) {
          copy_word(memory + to + line * lines.to_step + i, from + line * lines.from_step + i);
        }
      }
    }
  }

  // The weights are copied before the window, which waits for the previous kernel.
  __device__ __forceinline__ void copy_weights(const ChunkArguments& a, const ChunkStage& stage, int warp,
                                               int warps) const {
    const ChunkLines weights = {stage.taps(a) * a.n.parts, weight_bytes, layout.low_weights, a.n.tap};
    if (kCopiesBulk && warp == 0 && threadIdx.x % 32 == 0) {
      const int bytes = weights.count * weights.bytes + a.n.parts * window.count * window.bytes;
      arrive_expecting(full + stage.buffer, static_cast<std::uint32_t>(bytes));
    }
    copy(weights, stage.weights, stage.start(a), full + stage.buffer, warp, warps);
  }
  __device__ __forceinline__ void copy_window(const ChunkArguments& a, const ChunkStage& stage, int warp,
                                              int warps) const {
#pragma unroll 1
    for (int part = 0; part < a.n.parts; ++part) {
      copy(window, stage.window + part * a.n.part, stage.start(a) + layout.window + part * layout.low_window,
           full + stage.buffer, warp, warps);
    }
  }
};

// The first copies, of all stages that shared memory has room for. A warp works for one stage.
struct FirstCopies {
  ChunkStage stage;
  int warp, warps;  // warps that share the stage's copies, and which of them this is; kChunkWarps: it has no stage
  int stages;

  __device__ __forceinline__ FirstCopies(const ChunkArguments& a, const ChunkItem& item)
      : stage(a, item), warps(1 << a.n.stage_warps_log), stages(min_of(a.n.stages, item.stages)) {
    const int own = static_cast<int>(threadIdx.x) / 32, before = own >> a.n.stage_warps_log;
    warp = before < stages ? own & (warps - 1) : kChunkWarps;
#pragma unroll 1
    for (int s = 0; s < before; ++s) stage.advance(a);
  }
  __device__ __forceinline__ void copy_weights(const ChunkArguments& a, const ChunkCopies& copies) const {
    if (warp < warps) copies.copy_weights(a, stage, warp, warps);
  }
  __device__ __forceinline__ void copy_windows(const ChunkArguments& a, const ChunkCopies& copies) const {
    if (warp < warps) copies.copy_window(a, stage, warp, warps);
    if constexpr (!kCopiesBulk) {
      for (int s = 0; s < stages; ++s) arrive_with_copies(copies.full + s);
    }
  }
};

}  // namespace sluice
