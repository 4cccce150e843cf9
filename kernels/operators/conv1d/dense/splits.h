// Split-K of the tiles that do not fill the device: each of them is shared by several blocks, which sum over some of
// the k-blocks.
//
//   blocks     0        1        2        3        4        5
//              tile 0   tile 1   tile 2   tile 3   tile 4   tile 5      whole: waves that fill the device
//              tile 6 / 1   / 2      / 3  tile 7 / 1   / 2      / 3     the rest: three splits of each tile
//
// All splits but the last store their sums in memory; the last adds them in order and finishes the tile (splits.cuh).
#pragma once

#include "kernels/operators/conv1d/dense/dense.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {

// Indices count whole tiles, then the splits of the other tiles.
struct DenseSplits {
  int whole_tiles = 0, count = 1;  // count of a tile's splits
  int k_blocks = 0;                // k-blocks of a split; the last may have fewer
  FastDivisor by_count;
  float* sums = nullptr;       // sums of all splits but the last
  unsigned* stored = nullptr;  // warpgroups' stored splits, two counts a tile, zero at first

  SLUICE_HOST_DEVICE bool exist() const { return count > 1; }
  SLUICE_HOST_DEVICE bool is_whole(int index) const { return index < whole_tiles; }
  // Index of a split tile among all that are.
  SLUICE_HOST_DEVICE int split_tile(int index) const {
    return static_cast<int>(by_count.quotient_of_31_bits(static_cast<std::uint32_t>(index - whole_tiles)));
  }
  SLUICE_HOST_DEVICE int tile_of(int index) const { return is_whole(index) ? index : whole_tiles + split_tile(index); }
  // 0 of a whole tile; splits from 1 on.
  SLUICE_HOST_DEVICE int split_of(int index) const {
    return is_whole(index) ? 0 : 1 + index - whole_tiles - split_tile(index) * count;
  }
  SLUICE_HOST_DEVICE int first_k_block(int split) const { return split == 0 ? 0 : (split - 1) * k_blocks; }
  SLUICE_HOST_DEVICE int k_blocks_of(int split, int all) const {
    return split == 0 ? all : min_of(k_blocks, all - first_k_block(split));
  }
};

// Bytes of the counts, whose memory is set to zero before the kernel.
inline long long split_count_bytes(long long split_tiles) {
  return round_up<long long>(split_tiles * 2 * sizeof(unsigned), kWordBytes);
}
inline long long split_bytes(const DensePlan& plan) {
  const long long sums = 1LL * plan.positions() * plan.channels() * kSumBytes;
  return split_count_bytes(plan.split_tiles()) + plan.split_tiles() * (plan.splits - 1) * sums;
}

// `memory`: split_bytes(plan), aligned to 16 bytes.
inline DenseSplits dense_splits(const DensePlan& plan, void* memory) {
  return {.whole_tiles = static_cast<int>(plan.whole_tiles),
          .count = plan.splits,
          .k_blocks = plan.k_blocks_of_split(),
          .by_count = FastDivisor(plan.splits),
          .sums = reinterpret_cast<float*>(static_cast<char*>(memory) + split_count_bytes(plan.split_tiles())),
          .stored = static_cast<unsigned*>(memory)};
}

}  // namespace sluice
