// Plans of short chunks: blocks that fit, and that together have all columns, channels and k-blocks.
#include <random>

#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/shared/common/architectures.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

TEST(blocks_of_a_chunk_have_all_of_it) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int planned = 0, split = 0, several = 0, staged = 0;
  for (int n = 0; n < 3000; ++n) {
    const int bytes = draw(0, 1) == 0 ? 2 : 4, parts = bytes == 4 ? draw(1, 2) : 1;
    ChunkParams p{};
    p.rows = draw(1, 64), p.frames = draw(0, 3) == 0 ? draw(1, 2000) : draw(1, 16);
    p.taps = draw(1, 16), p.stride = draw(1, 8), p.dilation = draw(1, 3);
    p.chunk.channels = draw(1, 1200);
    p.order = packed_order(draw(1, 1200), p.chunk.channels, p.taps, bytes, parts);
    const ChunkPlan plan = plan_chunk(p, bytes == 2 ? DType::float16 : DType::float32, kH200);
    if (plan.grid == 0) continue;
    ++planned;
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
    CHECK(plan.rows * plan.frames <= plan.columns() && plan.columns() <= 32 * kChunkWarps);
    CHECK(kChunkWarps >> plan.warp_columns_log >= 1 && (plan.lane_columns == 16 || plan.lane_columns == 32));
    const long long row_tiles = ceil_div<long long>(p.rows, plan.rows);
    CHECK(plan.column_tiles == row_tiles * ceil_div<long long>(p.frames, plan.frames));
    CHECK(plan.channel_tiles * kChunkChannels >= p.order.rows && plan.grid == plan.tiles() * plan.splits);
    CHECK((plan.splits - 1) * plan.k_blocks < p.order.k_blocks && plan.splits * plan.k_blocks >= p.order.k_blocks);
    // The last tap of the last frame, in a tile and in a row.
    const int last = p.dilation * (p.taps - 1) / p.stride;
    CHECK(plan.tile_places % 2 == 0 && plan.tile_places >= plan.frames + last);
    CHECK(plan.places % 2 == 0 && plan.places >= p.frames + last);
    CHECK(plan.frames < p.frames || plan.tile_places == plan.places);
    const int row_bytes = p.order.row_bytes() * parts;
    const int window = plan.rows * p.stride * plan.tile_places * row_bytes;
    CHECK(plan.stage_bytes == window + plan.stage_taps * kChunkChannels * row_bytes);
    CHECK(plan.stages >= 1 && plan.stages <= kChunkStages);  // each has a barrier
    CHECK(plan.stages * plan.stage_bytes <= plan.shared_memory);
    const int all_stages = plan.k_blocks * ceil_div(p.taps, plan.stage_taps);
    CHECK(plan.stages <= all_stages && (plan.stages > 1 || all_stages == 1));
    const long long windows = p.rows * p.stride * plan.places * p.word_rows() * kWordBytes * parts;
    CHECK(windows <= plan.counters_at && plan.counters_at <= plan.sums_at && plan.sums_at <= plan.workspace_bytes);
    split += plan.splits > 1, several += plan.column_tiles > 1, staged += all_stages > plan.stages;
  }
  CHECK(planned > 1000 && split > 30 && several > 30 && staged > 30);
}

TEST(code_for_a100_starts_behind) {
  CHECK(!can_start_beside(80) && !can_start_beside(89));
  CHECK(can_start_beside(120) == (code_capability(120) >= 90));  // PTX of 8.0 does not wait
}

TEST(chunks_are_for_tensor_cores) {
  ChunkParams p{};
  p.rows = p.frames = p.taps = p.stride = p.dilation = 1;
  p.chunk.channels = 64;
  p.order = packed_order(64, 64, 1, 4);
  CHECK(plan_chunk(p, DType::float32, kH200).grid > 0);
  CHECK(plan_chunk(p, DType::float64, kH200).grid == 0);
  DeviceProperties older = kH200;
  older.compute_capability = 75;
  CHECK(plan_chunk(p, DType::float32, older).grid == 0);
  p.rows = 1 << 28;
  CHECK(plan_chunk(p, DType::float32, kH200).grid == 0);
}
