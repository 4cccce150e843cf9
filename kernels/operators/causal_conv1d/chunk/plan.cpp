#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr int kLeastCapability = 80;
constexpr long long kMostColumns = 4096;  // columns of all rows
// Blocks share k-blocks until there are so many of them per multiprocessor; a block has at least so many units of work.
constexpr int kLeastUnits = kChunkWarps;

// Units of a k-block: a tap of a group of four words.
int units_of_k_block(const PackedOrder& order) { return order.taps * ceil_div(order.words(), 4); }

int sums_bytes(int columns) { return kChunkWarps * columns * (kChunkChannels + 2) * static_cast<int>(sizeof(float)); }

}  // namespace

ChunkPlan plan_chunk(const ChunkParams& p, DType dtype, const DeviceProperties& device) {
  ChunkPlan plan;
  if (device.compute_capability < kLeastCapability || dtype == DType::float64) return plan;
  const long long all = p.rows * p.frames;
  if (all < 1 || all > kMostColumns || p.order.rows >= 1 << 30) return plan;
  const int most = p.order.parts == 2 ? kMostChunkColumns / 2 : kMostChunkColumns;
  plan.columns = all <= 16 ? 16 : all <= 32 || most == 32 ? 32 : 64;
  plan.frames = static_cast<int>(min_of<long long>(p.frames, plan.columns));
  plan.rows = static_cast<int>(min_of<long long>(plan.columns / plan.frames, p.rows));
  plan.window = (plan.frames - 1) * p.stride + p.dilation * (p.taps - 1) + 1;
  const int places = round_up(plan.window, p.stride);  // places of a row: a stride's residues have as many each
  const int k_block_bytes = plan.rows * places * p.order.row_bytes() * p.order.parts;
  const int room = most_dynamic_shared_memory(device) - kChunkRowsBytes;
  if (k_block_bytes > room || sums_bytes(plan.columns) > room) return plan;
  plan.column_tiles = ceil_div<long long>(p.rows, plan.rows) * ceil_div<long long>(p.frames, plan.frames);
  plan.channel_tiles = ceil_div<long long>(p.order.rows, kChunkChannels);
  const long long tiles = plan.column_tiles * plan.channel_tiles;
  const int units = units_of_k_block(p.order) * p.order.k_blocks;
  const long long wanted = max_of<long long>(1, device.multiprocessors / tiles);
  plan.splits = static_cast<int>(min_of<long long>(wanted, max_of(1, units / kLeastUnits)));
  plan.splits = min_of(plan.splits, p.order.k_blocks);
  plan.k_blocks = ceil_div(p.order.k_blocks, plan.splits);
  plan.splits = ceil_div(p.order.k_blocks, plan.k_blocks);
  plan.staged = max_of(1, min_of(plan.k_blocks, room / 2 / k_block_bytes));
  plan.shared_memory = kChunkRowsBytes + max_of(plan.staged * k_block_bytes, sums_bytes(plan.columns));
  plan.grid = static_cast<int>(min_of<long long>(tiles * plan.splits, device.multiprocessors));
  const bool keeps_sums = plan.splits > 1 || p.spread > 0;
  plan.workspace_bytes = keeps_sums ? plan.splits * tiles * plan.columns * kChunkChannels * 4 : 0;
  return plan;
}

}  // namespace sluice
