// How few_taps_rows and plain_rows divide the words of rows among blocks.
#pragma once

#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {

// A row is `tiles` of `lanes` threads across, with `words` words each; a block has a tile of `rows` rows.
struct RowCut {
  long long tiles;
  int lanes, words, rows;

  int threads() const { return lanes * rows; }
  long long blocks(long long all_rows) const { return tiles * ceil_div<long long>(all_rows, rows); }
  // Words that exist, per thousand that a block's warps could hold.
  long long filled(long long vectors) const {
    return 1000 * vectors * rows / (tiles * words * round_up<long long>(threads(), 32));
  }
};

// Rows of `vectors` words, `words` a thread. `rows`: per block, or 0 for about kFewTapsRowThreads threads.
inline RowCut cut_into(long long tiles, long long vectors, int words, int rows = 0) {
  const int lanes =
      static_cast<int>(max_of<long long>(kFewTapsLeastLanes, ceil_div<long long>(vectors, tiles * words)));
  return {tiles, lanes, words, rows > 0 ? rows : max_of(1, kFewTapsRowThreads / lanes)};
}

// Threads across divide a row evenly; if they are few, a block takes several rows. `most`: words per thread.
inline RowCut cut_rows(long long rows, long long vectors, int most, const DeviceProperties& device) {
  constexpr long long kLeastFilled = 750, kBlocksOfMultiprocessor = 8;
  const DepthwisePolicy& policy = policy_of(device, kDepthwisePolicies);
  int words = vectors < policy.short_row_lanes * most && vectors % most != 0 ? most / 2 : most;
  while (words > 1 && rows * vectors < words * static_cast<long long>(policy.busy_threads) * device.multiprocessors)
    words /= 2;
  const long long tile = words * kFewTapsRowThreads;
  const long long tiles = max_of<long long>(1, (vectors + tile / 2) / tile);
  RowCut best = cut_into(tiles, vectors, words);
  // 65 threads across are three warps: 16381 results of a half type in unaligned rows. More rows a block or one more
  // tile a row fill the warps, if there are enough blocks.
  for (long long more = tiles; more <= tiles + 1 && best.filled(vectors) < kLeastFilled; ++more) {
    for (int each = 1; each * cut_into(more, vectors, words).lanes <= kFewTapsThreads; ++each) {
      const RowCut cut = cut_into(more, vectors, words, each);
      const bool enough = cut.blocks(rows) >= kBlocksOfMultiprocessor * device.multiprocessors;
      if (enough && cut.filled(vectors) > best.filled(vectors)) best = cut;
    }
  }
  return best;
}

}  // namespace sluice
