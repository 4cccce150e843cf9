// Plans of Toeplitz products (toeplitz.cuh).
#include "kernels/operators/filter2d/direct_plans.h"
#include "kernels/shared/mma/toeplitz.h"

namespace sluice {
namespace {

constexpr int kWarpGroups = kToeplitzUnits * kUnitGroups;

int steps_of(const Filter2dProblem& problem) {
  return ceil_div(problem.kernel_width + kVectorOutputs - 1, kStepPositions);
}

long long kernel_bytes(const Filter2dProblem& problem) {
  return 2LL * problem.kernel_height * tap_copy_bytes(steps_of(problem));
}

// A tile of `lanes` groups across, for as many warps as its groups need, at most `warps`.
struct ToeplitzTile {
  int warps = 0, lanes = 0, down = 0;  // groups
  int pitch_words = 0;
  long long words = 0;              // words of the image
  long long across = 0, below = 0;  // tiles of a plane

  ToeplitzTile(const Filter2dProblem& problem, int most_warps, int of_lanes) : lanes(of_lanes) {
    const long long rows = ceil_div<long long>(problem.output_height, kToeplitzRows);
    down = static_cast<int>(min_of<long long>(most_warps * kWarpGroups / lanes, rows));
    warps = ceil_div(down * lanes, kWarpGroups);
    pitch_words = lanes - 1 + 2 * steps_of(problem);
    words = (1LL * down * kToeplitzRows + problem.kernel_height - 1) * pitch_words;
    across = ceil_div<long long>(problem.output_width, lanes * kVectorOutputs);
    below = ceil_div<long long>(rows, max_of(down, 1));
  }

  long long shared_bytes(const Filter2dProblem& problem) const { return words * kWordBytes + kernel_bytes(problem); }
  // Clocks of an SM for a plane.
  double cost(const Filter2dProblem& problem, const Filter2dPolicy& policy) const {
    const auto products = static_cast<double>(problem.kernel_height * steps_of(problem));
    const double units = ceil_div(down * lanes, kUnitGroups);
    const double tile = policy.toeplitz_tile_clocks + static_cast<double>(words) * policy.toeplitz_word_tenths / 10 +
                        units * products * policy.toeplitz_product_clocks;
    return static_cast<double>(across * below) * tile;
  }
};

// One row of groups for a warp. Tiles of as many groups in more rows take more shared memory.
ToeplitzTile smallest_tile(const Filter2dProblem& problem) { return {problem, 1, kWarpGroups}; }

// The cheapest tile that fits.
ToeplitzTile choose_tile(const Filter2dProblem& problem, const DeviceProperties& device) {
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  ToeplitzTile best = smallest_tile(problem);
  const auto consider = [&](int warps, int lanes) {
    const ToeplitzTile tile(problem, warps, lanes);
    if (tile.down < 1 || tile.shared_bytes(problem) > most_dynamic_shared_memory(device)) return;
    if (tile.cost(problem, policy) < best.cost(problem, policy)) best = tile;
  };
  const long long exact = ceil_div<long long>(problem.output_width, kVectorOutputs);
  for (int warps : {4, 2, 1}) {
    for (int lanes : policy.toeplitz_lanes) consider(warps, lanes);
    if (exact < warps * kWarpGroups) consider(warps, static_cast<int>(exact));
  }
  return best;
}

}  // namespace

bool suits_toeplitz(const Filter2dProblem& problem, const DeviceProperties& device) {
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  if (size_of(problem.dtype) != 2 || problem.separable || !problem.sampling.have_unit_steps() ||
      !problem.has_small_planes) {
    return false;
  }
  const long long taps = static_cast<long long>(problem.kernel_height) * problem.kernel_width;
  if (taps < policy.least_toeplitz_taps || problem.column_stride > policy.most_toeplitz_stride) return false;
  constexpr int kMostSide = 1 << 10, kMostExtent = 1 << 29;
  if (max_of(problem.output_height, problem.output_width) > kMostExtent) return false;
  return max_of(problem.kernel_height, problem.kernel_width) <= kMostSide &&
         smallest_tile(problem).shared_bytes(problem) <= most_dynamic_shared_memory(device);
}

void set_toeplitz(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  const ToeplitzTile tile = choose_tile(problem, device);
  plan.channels_together = has_channels_together(problem);
  plan.steps = steps_of(problem);
  plan.lanes = tile.lanes;
  plan.groups_down = tile.down;
  plan.pitch_words = tile.pitch_words;
  plan.stage_words = static_cast<int>(tile.words);
  plan.tap_bytes = static_cast<int>(kernel_bytes(problem));
  plan.tiles_across = tile.across;
  plan.tiles_down = tile.below;
  plan.threads = 32 * tile.warps;
  plan.tile = tile.lanes * kVectorOutputs * tile.down * kToeplitzRows;
  plan.shared_memory = static_cast<int>(tile.shared_bytes(problem));
  plan.grid = problem.batch * problem.channels * plan.tiles_across * plan.tiles_down;
}

}  // namespace sluice
