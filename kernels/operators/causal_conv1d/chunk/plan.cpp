#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/remembered.h"

namespace sluice {
namespace {

constexpr int kLeastCapability = 80;
// Bytes of the weights' elements that all columns multiply, beyond which conv1d's kernels are faster (H200): without a
// window; on a window (512 channels, 7 taps, half types: 0.85 times their time for 256 columns, 2.5 times for 1,024);
// and of strides, where they may be torch's (float32, 512 to 1,024 channels, 16 taps, stride 8, 128 columns: 0.14
// times).
constexpr long long kMostPointwiseBytes = 1LL << 28, kMostBytes = 5LL << 29, kMostStridedBytes = 1LL << 33;
constexpr long long kMostIndex = 1LL << 31;   // indices of words and results have 32 bits
constexpr long long kMostPlaces = 1LL << 28;  // places of a row
constexpr int kResidents = 2;
constexpr int kSystemSharedMemory = 1024;  // bytes of each block

// What a plan takes, in nanoseconds, beyond what every plan does: rough numbers of an H200, whose choices take 1.01
// times the best plans' time over 52 layers.
constexpr double kMultiprocessorBytes = 80;  // bytes copied per nanosecond
constexpr double kProducts = 1000;           // of half types, a multiprocessor's per nanosecond
constexpr double kUnit = 200;                // a warp's unit of products (product.cuh)
constexpr double kRefill = 500;              // a stage whose copies wait for an earlier stage
constexpr double kTurn = 4000;               // a block behind another: its start and its end
constexpr double kFinish = 200;              // results, and sums of splits, of 32 columns
constexpr double kJoin = 2300;               // sums of splits

int even(int count) { return round_up(count, 2); }

void cut_columns(ChunkPlan& plan, const ChunkParams& p, int warps) {
  const int most = (p.taps - 1) * p.dilation / p.stride;  // places from a frame's first to its last tap
  plan.warp_columns_log = warps;
  plan.frames = static_cast<int>(min_of<long long>(p.frames, plan.columns()));
  plan.rows = static_cast<int>(min_of<long long>(plan.columns() / plan.frames, p.rows));
  plan.tile_places = plan.frames == p.frames ? plan.places : even(plan.frames + most);
  plan.column_tiles = ceil_div<long long>(p.rows, plan.rows) * ceil_div<long long>(p.frames, plan.frames);
}

void split_k_blocks(ChunkPlan& plan, const ChunkParams& p, int splits) {
  plan.k_blocks = ceil_div(p.order.k_blocks, splits);
  plan.splits = ceil_div(p.order.k_blocks, plan.k_blocks);
}

// The next count of splits with fewer k-blocks each, of which there are at most some thirty.
int next_split(const ChunkPlan& plan, const ChunkParams& p) {
  const int least = plan.k_blocks - max_of(1, plan.k_blocks / 16);
  return least > 0 ? ceil_div(p.order.k_blocks, least) : p.order.k_blocks + 1;
}

long long window_bytes(const ChunkPlan& plan, const ChunkParams& p) {
  return static_cast<long long>(plan.rows) * p.stride * plan.tile_places * p.order.row_bytes() * p.order.parts;
}

// Whether shared memory has room for stages of these many taps: for two of them if a block has so many.
bool fit_stages(ChunkPlan& plan, const ChunkParams& p, int tap_groups, int room) {
  const int weights = kChunkChannels * p.order.row_bytes() * p.order.parts;
  const int sums = kChunkWarps * plan.lane_columns * kChunkSumsPitch * static_cast<int>(sizeof(float));
  plan.stage_taps = ceil_div(p.taps, tap_groups);
  plan.tap_groups = ceil_div(p.taps, plan.stage_taps);
  const long long bytes = window_bytes(plan, p) + static_cast<long long>(plan.stage_taps) * weights;
  const int needed = plan.k_blocks * plan.tap_groups;
  plan.stages = static_cast<int>(min_of<long long>(min_of(needed, kChunkStages), (room - kChunkSharedBytes) / bytes));
  if (plan.stages < min_of(needed, 2) || sums > room - kChunkSharedBytes) return false;
  plan.stage_bytes = static_cast<int>(bytes);
  plan.shared_memory = kChunkSharedBytes + max_of(plan.stages * plan.stage_bytes, sums);
  return true;
}

double cost_of(const ChunkPlan& plan, const ChunkParams& p, const DeviceProperties& device) {
  const long long blocks = plan.tiles() * plan.splits;
  const int room = device.shared_memory_per_multiprocessor / (plan.shared_memory + kSystemSharedMemory);
  const int residents = p.order.parts == 2 ? 1 : max_of(1, min_of(room, kResidents));
  const auto turns = static_cast<double>(ceil_div<long long>(blocks, residents * device.multiprocessors));
  const double at_once = residents > 1 && blocks > device.multiprocessors ? 2 : 1;  // blocks of a multiprocessor
  const double of_k_block = 1.0 * p.taps * p.order.row_bytes();
  const double weights = of_k_block * kChunkChannels * p.order.parts;
  const double bytes = plan.k_blocks * (plan.tap_groups * static_cast<double>(window_bytes(plan, p)) + weights);
  const double products = plan.k_blocks * of_k_block / 2 * plan.columns() * kChunkChannels * (2 * p.order.parts - 1);
  const double units = plan.k_blocks * of_k_block / 64 * (1 << plan.warp_columns_log) / kChunkWarps;
  const int stages = plan.k_blocks * plan.tap_groups;
  const double of_turn = at_once * max_of(bytes / kMultiprocessorBytes, products / kProducts) + kUnit * units +
                         kFinish * at_once * plan.columns() / 32 + kRefill * max_of(0, stages - plan.stages) + kTurn;
  const double join = plan.splits > 1 ? kJoin + kFinish * plan.columns() / 32 : 0;
  return turns * of_turn + join;
}

// The cheapest tile, splits and stages.
bool choose_tile(ChunkPlan& plan, const ChunkParams& p, const DeviceProperties& device) {
  plan.lane_columns = p.rows * p.frames <= 16 ? 16 : 32;
  plan.channel_tiles = ceil_div<long long>(p.order.rows, kChunkChannels);
  const int whole = most_dynamic_shared_memory(device);
  const int half = min_of(whole, device.shared_memory_per_multiprocessor / 2 - kSystemSharedMemory);
  double least = 0;
  ChunkPlan best, own = plan;
  for (int warps = 0; warps <= 3; ++warps) {
    if (warps > 0 && own.lane_columns << (warps - 1) >= p.rows * p.frames) continue;
    cut_columns(own, p, warps);
    for (int splits = 1; splits <= p.order.k_blocks; splits = next_split(own, p)) {
      split_k_blocks(own, p, splits);
      for (int groups = 1; groups < 2 * p.taps; groups *= 2) {
        for (int residents = p.order.parts == 2 ? 1 : kResidents; residents >= 1; --residents) {
          if (!fit_stages(own, p, min_of(groups, p.taps), residents == 1 ? whole : half)) continue;
          const double cost = cost_of(own, p, device);
          if (least == 0 || cost < least) least = cost, best = own;
        }
      }
    }
  }
  if (least == 0) return false;
  plan = best;
  return true;
}

// How threads finish a tile: stores are of adjacent results where there are any.
void order_results(ChunkPlan& plan, const ChunkParams& p) {
  const bool is_whole = plan.rows == 1 || plan.frames % kChunkRun == 0;
  plan.along = p.spread == 0 && p.output.strides[2] == 1 && p.frames > 1 && is_whole;
  plan.by_components = p.spread > 0 && p.channel_rows > 1;
  plan.single = plan.by_components && p.spread % kChunkRun != 0;
}

void lay_out_workspace(ChunkPlan& plan, const ChunkParams& p) {
  const auto aligned = [](long long bytes) { return round_up<long long>(bytes, 128); };
  const long long words = p.rows * p.stride * plan.places * p.word_rows() * p.order.parts;
  const bool is_split = plan.splits > 1;
  plan.counters_at = aligned(words * kWordBytes);
  plan.sums_at = plan.counters_at + aligned(is_split ? plan.tiles() * 4 : 0);
  plan.overlaps_at = plan.sums_at + (is_split ? plan.splits * plan.tiles() * plan.columns() * kChunkChannels * 4 : 0);
  plan.workspace_bytes = plan.overlaps_at + (p.spread > 0 ? p.rows * p.overlap * p.channels * 4 : 0);
}

ChunkPlan make_plan(const ChunkParams& p, DType dtype, const DeviceProperties& device) {
  ChunkPlan plan;
  if (device.compute_capability < kLeastCapability || dtype == DType::float64) return plan;
  if (p.spread == 0 && p.chunk.states.before.exists() && p.chunk.states.before.dtype != dtype) return plan;
  const long long all = p.rows * p.frames;
  if (all < 1 || all >= kMostIndex || p.order.rows >= kMostIndex / all) return plan;
  const long long inputs = static_cast<long long>(p.order.k_blocks) * p.order.k_block * p.taps;
  const bool is_strided = p.spread > 0 || p.stride > 1;
  const long long most = is_strided ? kMostStridedBytes : p.taps > 1 ? kMostBytes : kMostPointwiseBytes;
  if (all * p.order.rows > most / (inputs * p.order.element_bytes)) return plan;
  const long long reach = static_cast<long long>(p.dilation) * (p.taps - 1) + 1;
  if (p.frames + reach >= kMostPlaces) return plan;
  plan.places = even(static_cast<int>(p.frames - 1 + ceil_div<long long>(reach, p.stride)));
  if (p.rows * p.stride * plan.places * p.word_rows() >= kMostIndex) return plan;
  if (p.rows * p.chunk.states.columns * p.chunk.channels >= kMostIndex) return plan;
  if (!choose_tile(plan, p, device) || plan.tiles() * plan.splits >= kMostIndex) return plan;
  order_results(plan, p);
  lay_out_workspace(plan, p);
  plan.grid = static_cast<int>(plan.tiles() * plan.splits);
  return plan;
}

// All that a plan depends on.
struct PlanKey {
  PackedOrder order;
  DeviceProperties device;
  DType dtype, state_dtype;
  long long rows, channels, frames, input_channels, columns, channel_rows, overlap;
  int taps, stride, dilation, spread;
  bool has_states, is_contiguous;

  PlanKey() = default;
  PlanKey(const ChunkParams& p, DType own, const DeviceProperties& on)
      : order(p.order),
        device(on),
        dtype(own),
        state_dtype(p.chunk.states.before.dtype),
        rows(p.rows),
        channels(p.channels),
        frames(p.frames),
        input_channels(p.chunk.channels),
        columns(p.chunk.states.columns),
        channel_rows(p.channel_rows),
        overlap(p.overlap),
        taps(p.taps),
        stride(p.stride),
        dilation(p.dilation),
        spread(p.spread),
        has_states(p.chunk.states.before.exists()),
        is_contiguous(p.output.strides[2] == 1) {}
  bool operator==(const PlanKey&) const = default;
};

}  // namespace

ChunkPlan plan_chunk(const ChunkParams& p, DType dtype, const DeviceProperties& device) {
  const PlanKey key(p, dtype, device);
  const std::size_t hash = hash_of(p.rows, p.channels, p.frames, p.chunk.channels, p.taps, p.stride, p.spread);
  return remembered<ChunkPlan, PlanKey>(key, hash, [&] { return make_plan(p, dtype, device); });
}

}  // namespace sluice
