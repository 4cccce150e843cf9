// The stages of a portable dense plan, and the model of its time.
#include "kernels/operators/conv1d/dense/cycles.h"
#include "kernels/operators/conv1d/dense/portable/policy.h"
#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/operators/conv1d/dense/problem.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {
namespace {

constexpr long long kLeastStages = 2, kWantedStages = 3;

// A unit's rows, for so many of a residue's taps.
long long rows_of(const DensePlan& plan, long long taps) {
  return round_up<long long>(plan.positions() + (taps - 1) * plan.residues.row_step, kSwizzleRows);
}
long long tap_bytes(const DensePlan& plan) { return 1LL * plan.order.parts * plan.channels() * plan.row_bytes(); }
long long stage_bytes(const DensePlan& plan, long long taps) {
  const long long rows = plan.order.parts * round_up(rows_of(plan, taps) * plan.row_bytes(), 1LL * kTileAlignment);
  return rows + (plan.resident ? 0 : taps * tap_bytes(plan));
}

// The most of a residue's taps with which so many stages fit, spread evenly over units; 0 where a tap's do not.
int taps_of_unit(const DensePlan& plan, long long stages, long long available) {
  const int all = plan.residues.taps_of(0);
  int taps = 0;
  for (int most = all; taps < most;) {  // `taps` fit, more than `most` do not
    const int middle = (taps + most + 1) / 2;
    const bool fits = rows_of(plan, middle) <= kMostStageRows && stages * stage_bytes(plan, middle) <= available;
    (fits ? taps : most) = fits ? middle : middle - 1;
  }
  if (taps == 0 || (plan.resident && taps < all)) return 0;
  return ceil_div(all, ceil_div(all, taps));
}

}  // namespace

void set_portable_stages(Conv1dPlan& plan, const DeviceProperties& device) {
  DensePlan& own = plan.dense;
  const long long resident = own.resident ? 1LL * own.k_blocks * own.order.taps * tap_bytes(own) : 0;
  const long long available = most_dynamic_shared_memory(device) - kDenseSharedBytes - resident;
  for (long long stages = kWantedStages; stages >= kLeastStages; --stages) {
    const int taps = taps_of_unit(own, stages, available);
    if (taps == 0) continue;
    own.stage_taps = taps;
    own.stage_rows = own.stage_positions = static_cast<int>(rows_of(own, taps));
    const long long bytes = stage_bytes(own, taps);
    own.input_stages = own.weight_stages = static_cast<int>(min_of<long long>(kMaxDepth, available / bytes));
    plan.threads = kPortableThreads;
    plan.depth = own.input_stages;
    plan.shared_memory = static_cast<int>(kDenseSharedBytes + resident + own.input_stages * bytes);
    return;
  }
}

namespace {

// Products of an SM in a cycle, by architecture: of half types and of TF32.
struct PortableRates {
  int compute_capability;
  ByElement products;
};
constexpr PortableRates kPortableRates[] = {
    {.compute_capability = 80, .products = {.half = 1024, .wider = 512}},
    {.compute_capability = 86, .products = {.half = 512, .wider = 256}},
    {.compute_capability = 90, .products = {.half = 1024, .wider = 512}},
    {.compute_capability = 120, .products = {.half = 512, .wider = 256}},
};
// Cycles, fitted to the times of tilings of five convolutions (H200, float16, channels-last).
constexpr long long kSharedBytesPerCycle = 128, kCacheBytesPerCycle = 43, kGatheredBytesPerCycle = 1;
constexpr long long kUnitCycles = 1000;  // cycles of the producers, beside the copies
constexpr long long kStepCycles = 20, kTileCycles = 1200, kStoredBytesPerCycle = 12;

constexpr long long kSplitProductsInTime = 6;  // kSplitProducts, with the splits and each tap's sums: measured

}  // namespace

long long portable_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const DensePlan& own = plan.dense;
  const DenseShape& tile = own.tile();
  const int parts = own.order.parts, steps = own.row_bytes() / kStepBytes;
  const long long products_per_cycle = policy_of(device, kPortableRates).products.of(problem.dtype);
  const long long times = parts == 2 ? kSplitProductsInTime : 1;
  const long long products = times * own.positions() * own.channels() * own.k_block() / products_per_cycle;
  const long long warp_bytes = (16LL * tile.blocks + tile.channels) * own.row_bytes();
  const long long shared = times * 8 * warp_bytes / kSharedBytesPerCycle;
  const long long tap = max_of(max_of(products, shared), kStepCycles * steps);
  const long long units_of_residue = ceil_div(own.residues.taps_of(0), own.stage_taps);
  const long long units = units_of_residue * own.residues.count;
  const long long input = units * own.stage_rows * own.row_bytes() * parts;
  const long long weights = own.resident ? 0 : own.order.taps * tap_bytes(own);
  const long long rate = own.fetch == DenseFetch::channels ? kCacheBytesPerCycle : kGatheredBytesPerCycle;
  const long long fetch = units * kUnitCycles + input / rate + weights / kCacheBytesPerCycle;
  const long long k_block = max_of(own.order.taps * tap, fetch);
  const long long channels = min_of<long long>(own.channels(), outputs_of_group(problem));
  const long long positions = min_of<long long>(own.positions(), problem.output_length);
  const long long stores = positions * channels * element_bytes(problem) / kStoredBytesPerCycle;
  const long long waves = ceil_div(own.whole_tiles, plan.grid), after = stores + kTileCycles;
  const long long whole = waves * (own.k_blocks * k_block + after);
  if (own.splits == 1) return whole;
  return whole + own.k_blocks_of_split() * k_block + after + join_cycles(own);
}

}  // namespace sluice
