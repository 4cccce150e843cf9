// The portable dense kernel's arguments, its units of work and its shared-memory layout.
//
//   shared memory   | stage | stage | .. | all weights, where they stay | PortableShared |
//   stage           input rows of a unit's taps | their weights, unless all weights stay
#pragma once

#include "kernels/operators/conv1d/dense/arguments.cuh"
#include "kernels/operators/conv1d/dense/portable/unit_pipe.cuh"
#include "kernels/operators/conv1d/interleaved/interleaved.cuh"

namespace sluice {

// `Base`: GeneralDenseArguments, or the arguments of another epilogue. `is_pingpong`: the warpgroups take tiles beside
// each other in channels, instead of half of a tile's positions each. A stage of the ring is both an input stage and a
// weight stage: `input_stages` is its depth.
template <class Base>
struct PortableArguments : Base {
  static constexpr bool kKeepsSingles = true;
  using Epilogue = Base;

  long long row_pitch_bytes;  // bytes from a position of the input to the next
  long long tap_pitch_bytes;  // bytes from a tap's packed weights to the next tap's
  int tap_positions;          // positions from a residue's tap to its next tap
  int next_weights;           // bytes in shared memory from a residue's tap's weights to its next tap's
  bool halves_k_blocks;       // a k-block is half of a packed k-block: of twice as many bytes a row

  // Bytes from the packed weight's start to a k-block's first tap, without the half.
  SLUICE_HOST_DEVICE long long k_block_start(int k_block) const {
    return static_cast<long long>(k_block >> (halves_k_blocks ? 1 : 0)) * this->taps * tap_pitch_bytes;
  }
  SLUICE_HOST_DEVICE int packed_row_bytes() const { return this->row_bytes << (halves_k_blocks ? 1 : 0); }
  SLUICE_HOST_DEVICE int columns() const { return this->is_pingpong ? 2 : 1; }  // tiles beside each other
  SLUICE_HOST_DEVICE int tap_bytes(int tile_channels) const {                   // weights of a tap, with all parts
    return this->parts * columns() * tile_channels * this->row_bytes;
  }
  SLUICE_HOST_DEVICE int stage_bytes(int tile_channels) const {
    return this->input_stage_bytes() + (this->resident ? 0 : this->stage_taps * tap_bytes(tile_channels));
  }
  SLUICE_HOST_DEVICE int resident_bytes(int tile_channels) const {
    return this->resident ? this->k_blocks * this->taps * tap_bytes(tile_channels) : 0;
  }
};

template <class Base>
void fill(PortableArguments<Base>& a, const Conv1dParams& params, const Conv1dPlan& plan) {
  fill(static_cast<Base&>(a), params, plan);
  const DensePlan& own = plan.dense;
  a.row_pitch_bytes = params.input.strides[2] * size_of(params.input.dtype);
  a.halves_k_blocks = own.halves_k_blocks;
  a.tap_pitch_bytes = own.order.part_words() * kWordBytes * own.order.parts;
  a.tap_positions = a.row_step() * a.stride();
  const int tap_bytes = own.order.parts * own.channels() * own.row_bytes();
  a.next_weights = own.resident ? a.tap_step() * tap_bytes : tap_bytes;
}

// What a stage holds, for the consumers: their registers are for sums.
struct alignas(16) Unit {
  int k_block;     // index in the tile
  int position;    // of the input, in the stage's first row
  int taps;        // count
  int weights;     // bytes to the first tap's, from the stage or where all weights stay
  bool ends_tile;  // whether the unit is its tile's last
};

// Behind the stages. Not static: it would move the stages by their alignment.
struct PortableShared : DenseShared {
  UnitPipe::Storage ring;
  Unit units[kMaxDepth];
};
static_assert(sizeof(PortableShared) <= kDenseSharedBytes);

using PortableDenseArguments = PortableArguments<GeneralDenseArguments>;
using PortableInterleavedArguments = PortableArguments<InterleavedArguments>;

// The block's units in order: some taps of a residue of a k-block of a tile.
template <int Channels, class Arguments>
struct UnitWalk {
  const Arguments& a;
  int index = static_cast<int>(blockIdx.x);  // the tile
  int k_blocks = 0;                          // k-blocks of the tile
  int k_block = 0, residue = 0;
  int tap = 0;  // first of the unit's taps, among the residue's

  __device__ __forceinline__ explicit UnitWalk(const Arguments& arguments) : a(arguments) { begin_tile(); }

  __device__ __forceinline__ bool has_ended() const { return index >= a.tiles; }
  __device__ __forceinline__ DenseTile tile() const { return dense_tile(a, index, Channels * a.columns()); }
  __device__ __forceinline__ bool ends_tile() const {
    return k_block + 1 == k_blocks && residue + 1 == a.residues() && tap + a.stage_taps >= a.taps_of(residue);
  }
  __device__ __forceinline__ int taps() const { return min_of(a.stage_taps, a.taps_of(residue) - tap); }
  // Input positions from the tile's first to the unit's first row.
  __device__ __forceinline__ int positions() const { return residue * a.dilation + tap * a.tap_positions; }
  // Index of the unit's first tap among all.
  __device__ __forceinline__ int first_tap() const { return residue + tap * a.tap_step(); }

  // Whether the unit was its tile's last.
  __device__ __forceinline__ bool advance() {
    tap += a.stage_taps;
    if (tap < a.taps_of(residue)) return false;
    tap = 0;
    if (++residue < a.residues()) return false;
    residue = 0;
    if (++k_block < k_blocks) return false;
    k_block = 0;
    index += static_cast<int>(gridDim.x);
    begin_tile();
    return true;
  }

 private:
  __device__ __forceinline__ void begin_tile() {
    if (index < a.tiles) k_blocks = a.k_blocks_of(tile().group_or_split);
  }
};

}  // namespace sluice
