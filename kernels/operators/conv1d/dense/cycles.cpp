#include "kernels/operators/conv1d/dense/cycles.h"

#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/operators/conv1d/dense/problem.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr int kBlock = 64;  // positions of a wgmma

// Cycles of an SM. Half types' are fitted to all tilings and splits of 68 convolutions, most channels-last (H200,
// float16, identity): the chosen tiling takes 1.02 times as long as the fastest, at most 1.2 times. Float32's are an
// earlier fit, in which shared memory limits nothing.
constexpr long long wgmma_cycles(int channels) { return max_of(channels / 2, 20 + channels / 4); }
struct Rates {
  long long channels, positions, strided_positions, shifted, short_shifted;  // bytes of the input in a cycle
  long long shared_bytes;                                                    // bytes of shared memory in a cycle
  long long store_bytes;                                                     // bytes that a warpgroup stores in a cycle
  long long tile_cycles, turn_cycles, tap_cycles;  // cycles of each tile, of a turn in ping-pong, of a tap at least
  long long overlap;                               // percent of the hidden time that is not hidden
};
constexpr Rates kHalfRates{.channels = 18,
                           .positions = 10,
                           .strided_positions = 8,
                           .shifted = 5,
                           .short_shifted = 4,
                           .shared_bytes = 128,
                           .store_bytes = 12,
                           .tile_cycles = 600,
                           .turn_cycles = 800,
                           .tap_cycles = 160,
                           .overlap = 10};
constexpr Rates kSingleRates{.channels = 14,
                             .positions = 12,
                             .strided_positions = 6,
                             .shifted = 8,
                             .short_shifted = 3,
                             .shared_bytes = 1024,
                             .store_bytes = 12,
                             .tile_cycles = 1200,
                             .turn_cycles = 200,
                             .tap_cycles = 0,
                             .overlap = 5};
constexpr long long kBytesPerCycle = 40;  // bytes of the L2 cache, weights included

constexpr long long input_bytes_per_cycle(const Rates& rates, DenseFetch fetch, bool strides, bool is_short) {
  switch (fetch) {
    case DenseFetch::channels: return rates.channels;
    case DenseFetch::positions: return strides ? rates.strided_positions : rates.positions;
    case DenseFetch::shifted: return strides || is_short ? rates.short_shifted : rates.shifted;
    default: return 2;
  }
}
// The conversion to channels-last.
constexpr long long kConversionBytesPerCycle = 17, kConversionCycles = 3000;

// `pre` (chain_work.h), applied while a stage is filled or during the conversion: fitted to LeakyReLU, SiLU and Snake
// (8 x 128 x 3000 -> 1280, 4 x 96 x 220160 -> 96, H100).
constexpr long long kPreWork = 4, kPreWorkPerCycle = 70, kConversionWorkPerCycle = 400;

// Split-K: sums that are stored, and read by the last split one after another.
constexpr long long kSplitBytesPerCycle = 32, kSplitCycles = 3000;

long long fetched_bytes(const DensePlan& plan) {  // bytes of a stage of the input
  return round_up<long long>(1LL * plan.stage_positions * plan.row_bytes(), kTileAlignment);
}

long long conversion_cycles(const Conv1dProblem& problem, const DeviceProperties& device) {
  const long long bytes =
      ToChannelsLastParams::bytes(problem.dtype, problem.batch, problem.input_channels, problem.length);
  const long long work = bytes / element_bytes(problem) * problem.pre_work;
  return kConversionCycles +
         (2 * bytes / kConversionBytesPerCycle + work / kConversionWorkPerCycle) / device.multiprocessors;
}

}  // namespace

long long join_cycles(const DensePlan& plan) {
  const long long bytes = 1LL * plan.positions() * plan.channels() * kSumBytes;
  return kSplitCycles + bytes * plan.splits / kSplitBytesPerCycle;
}

long long block_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const DensePlan& own = plan.dense;
  if (own.is_portable) return portable_cycles(plan, problem, device);
  const DenseShape& tile = own.tile();
  const int parts = own.order.parts;
  const Rates& rates = problem.dtype == DType::float32 ? kSingleRates : kHalfRates;
  const long long tap_products = own.steps * (own.positions() / kBlock) * (parts == 2 ? kSplitProducts : 1);
  const long long tap_weights = own.resident ? 0 : parts * tile.channels * own.row_bytes();
  const long long tap_shared = tap_products * (kBlock + tile.channels) * kStepBytes + tap_weights;
  const long long tap =
      max_of(max_of(tap_products * wgmma_cycles(tile.channels), tap_shared / rates.shared_bytes), rates.tap_cycles);
  const bool is_short = problem.length < 4 * own.positions();
  const long long rate = input_bytes_per_cycle(rates, own.fetch, problem.stride > 1, is_short);
  const bool has_pre = problem.pre_work > 0 && !own.applies_pre_first;
  const long long channels = min_of<long long>(tile.channels, outputs_of_group(problem));
  const long long positions = min_of<long long>(own.positions(), problem.output_length);
  const long long stores = positions * channels * element_bytes(problem) / rates.store_bytes;
  struct Sums {
    long long products, busy;
  };
  const auto sums_of = [&](long long k_blocks) -> Sums {
    const long long products = k_blocks * own.order.taps * tap, weights = k_blocks * own.order.taps * tap_weights;
    const long long input = k_blocks * own.residues.stages() * fetched_bytes(own);
    const long long pre =
        has_pre ? input / element_bytes(problem) * (kPreWork + problem.pre_work) / kPreWorkPerCycle : 0;
    const long long fetches = max_of(input / rate, (input + weights) / kBytesPerCycle);
    return {products, max_of(products, fetches + pre) + min_of(products, fetches) * rates.overlap / 100};
  };
  const auto [products, busy] = sums_of(own.k_blocks);
  const long long waves = ceil_div(own.whole_tiles, plan.grid), after = stores / 2 + rates.tile_cycles;
  if (own.splits > 1) {
    return waves * (busy + after) + sums_of(own.k_blocks_of_split()).busy + after + join_cycles(own);
  }
  if (!own.is_pingpong) return waves * (busy + after);
  const long long alone = products + stores + rates.tile_cycles;  // a warpgroup's tile
  return waves * max_of(busy + rates.turn_cycles, alone / 2) + alone - products;
}

long long all_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  return block_cycles(plan, problem, device) + (plan.dense.converts_input ? conversion_cycles(problem, device) : 0);
}

}  // namespace sluice
