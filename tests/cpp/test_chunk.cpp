// Plans of short chunks: blocks that fit, and that together have all columns, channels and k-blocks.
#include <random>

#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

TEST(blocks_of_a_chunk_have_all_of_it) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int planned = 0, split = 0, several = 0;
  for (int n = 0; n < 3000; ++n) {
    const int bytes = draw(0, 1) == 0 ? 2 : 4, parts = bytes == 4 ? draw(1, 2) : 1;
    ChunkParams p{};
    p.rows = draw(1, 64), p.frames = draw(1, 16), p.taps = draw(1, 16), p.stride = draw(1, 8), p.dilation = draw(1, 3);
    p.input_channels = draw(1, 1200);
    p.order = packed_order(draw(1, 1200), p.input_channels, p.taps, bytes, parts);
    const ChunkPlan plan = plan_chunk(p, bytes == 2 ? DType::float16 : DType::float32, kH200);
    if (plan.grid == 0) continue;
    ++planned;
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200) && plan.grid <= kH200.multiprocessors);
    CHECK(plan.rows * plan.frames <= plan.columns && plan.columns <= (parts == 2 ? 32 : kMostChunkColumns));
    CHECK(plan.window == (plan.frames - 1) * p.stride + p.dilation * (p.taps - 1) + 1);
    const long long row_tiles = ceil_div<long long>(p.rows, plan.rows);
    CHECK(plan.column_tiles == row_tiles * ceil_div<long long>(p.frames, plan.frames));
    CHECK(plan.channel_tiles * kChunkChannels >= p.order.rows);
    CHECK((plan.splits - 1) * plan.k_blocks < p.order.k_blocks && plan.splits * plan.k_blocks >= p.order.k_blocks);
    CHECK(plan.staged >= 1 && plan.staged <= plan.k_blocks);
    // A residue's positions are rounded up to the next residue's.
    const int places = ceil_div(plan.window, p.stride) * p.stride * plan.rows;
    CHECK(plan.staged * places * p.order.row_bytes() * parts + kChunkRowsBytes <= plan.shared_memory);
    split += plan.splits > 1, several += plan.column_tiles > 1;
  }
  CHECK(planned > 1000 && split > 30 && several > 30);
}

TEST(chunks_are_for_tensor_cores) {
  ChunkParams p{};
  p.rows = p.frames = p.taps = p.stride = p.dilation = 1;
  p.input_channels = 64;
  p.order = packed_order(64, 64, 1, 4);
  CHECK(plan_chunk(p, DType::float32, kH200).grid > 0);
  CHECK(plan_chunk(p, DType::float64, kH200).grid == 0);
  DeviceProperties older = kH200;
  older.compute_capability = 75;
  CHECK(plan_chunk(p, DType::float32, older).grid == 0);
  p.rows = 1 << 20;
  CHECK(plan_chunk(p, DType::float32, kH200).grid == 0);
}
