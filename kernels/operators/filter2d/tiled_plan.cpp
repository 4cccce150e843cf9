// Plans of tiles in shared memory (tiled.cuh).
#include "kernels/operators/filter2d/direct_plans.h"

namespace sluice {
namespace {

int patch_rows(const Filter2dProblem& problem) { return problem.separable ? kSeparableRows : kPatchRows; }

// A tile of `lanes` patches across, for at most `most_threads`.
struct SharedTile {
  int lanes = 0, down = 0, threads = 0;
  int pitch_words = 0;
  long long words = 0;
  long long across = 0, below = 0;  // tiles of a plane
  long long bytes = 0;

  SharedTile(const Filter2dProblem& problem, int most_threads, int of_lanes) : lanes(of_lanes) {
    const int rows = patch_rows(problem), slack = problem.shifted ? word_elements(problem.dtype) - 1 : 0;
    const long long patches_down = ceil_div<long long>(problem.output_height, rows);
    below = ceil_div<long long>(patches_down, most_threads / lanes);
    down = static_cast<int>(ceil_div<long long>(patches_down, below));  // all tiles have the same height
    threads = round_up(lanes * down, 32);
    const int half = ceil_div(2 * lanes + ceil_div(problem.kernel_width, kTapsAtOnce), 2);
    pitch_words = 2 * half + 1;  // odd: four lanes and the lanes of the next rows are in different banks
    words = (1LL * down * rows + problem.kernel_height - 1) * pitch_words;
    across = ceil_div<long long>(problem.output_width + slack, static_cast<long long>(lanes) * kTiledColumns);
    bytes = words * kWordBytes + tap_bytes(problem);
  }

  // An estimate of an SM's clocks for all tiles: clocks of copies and products, where fewer than eight warps leave
  // it idle.
  double cost(const Filter2dProblem& problem, const DeviceProperties& device) const {
    constexpr double kStart = 500, kElement = 0.12, kProduct = 1 / 96.0;
    const int rows = patch_rows(problem);
    const double width = problem.kernel_width, height = problem.kernel_height;
    const double patches = static_cast<double>(lanes) * down * kTiledColumns;
    const double products = problem.separable
                                ? patches * rows * height + patches / down * (down * rows + height) * width
                                : patches * rows * height * width;
    const double tile = kStart + static_cast<double>(words) * kTapsAtOnce * kElement + products * kProduct;
    const long long tiles = problem.batch * problem.channels * across * below;
    const long long of_sm = ceil_div<long long>(tiles, device.multiprocessors);
    const long long fit = min_of<long long>(tiled_blocks(problem.separable) * kTiledThreads / threads,
                                            device.shared_memory_per_multiprocessor / (bytes + 1024));
    const double warps = static_cast<double>(min_of(max_of<long long>(fit, 1), of_sm)) * threads / 32;
    return static_cast<double>(of_sm) * tile * (warps < 8 ? 8 / warps : 1);
  }
};

SharedTile choose_tile(const Filter2dProblem& problem, const DeviceProperties& device) {
  SharedTile best(problem, 32, 1);
  double least = best.cost(problem, device);
  for (int threads : {kTiledThreads, kTiledThreads / 2, kTiledThreads / 4, 32}) {
    for (int lanes : policy_of(device, kFilter2dPolicies).tiled_lanes) {
      const SharedTile tile(problem, threads, lanes);
      if (tile.bytes > most_dynamic_shared_memory(device)) continue;
      const double cost = tile.cost(problem, device);
      if (best.bytes <= most_dynamic_shared_memory(device) && cost >= least) continue;
      best = tile;
      least = cost;
    }
  }
  return best;
}

}  // namespace

bool suits_tiled(const Filter2dProblem& problem, const DeviceProperties& device) {
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  constexpr int kMostSide = 1 << 10, kMostExtent = 1 << 29;
  const int side = max_of(problem.kernel_height, problem.kernel_width);
  if (problem.dtype == DType::float64 || !problem.sampling.have_unit_steps() || !problem.has_small_planes ||
      side > kMostSide || max_of(problem.output_height, problem.output_width) > kMostExtent) {
    return false;
  }
  // Results that are not whole words are stored element by element.
  const ByElement& least_taps =
      problem.rows_equally_aligned ? policy.least_tiled_taps : policy.least_tiled_taps_unlike_rows;
  const bool has_many_taps = problem.separable
                                 ? side >= policy.least_tiled_separable_side
                                 : problem.kernel_height >= kPatchRows - 1 &&
                                       problem.kernel_height * problem.kernel_width >= least_taps.of(problem.dtype);
  return has_many_taps && choose_tile(problem, device).bytes <= most_dynamic_shared_memory(device);
}

void set_tiled(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  const SharedTile tile = choose_tile(problem, device);
  plan.channels_together = has_channels_together(problem);
  plan.lanes = tile.lanes;
  plan.groups_down = tile.down;
  plan.pitch_words = tile.pitch_words;
  plan.stage_words = static_cast<int>(tile.words);
  plan.tap_bytes = static_cast<int>(tap_bytes(problem));
  plan.tiles_across = tile.across;
  plan.tiles_down = tile.below;
  plan.threads = tile.threads;
  plan.tile = tile.lanes * kTiledColumns * tile.down * patch_rows(problem);
  plan.shared_memory = static_cast<int>(tile.bytes);
  plan.grid = problem.batch * problem.channels * tile.across * tile.below;
}

}  // namespace sluice
