// Parts of plan_filter2d: kernels without a ring that have rules of their own.
#pragma once

#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/filter2d/policy.h"

namespace sluice {

// Whether a thread for each column (columns.cuh) can compute the problem.
bool suits_columns(const Filter2dProblem& problem);
void set_columns(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device);

// Whether tiles in shared memory (tiled.cuh) can compute the problem, and faster than patches.
bool suits_tiled(const Filter2dProblem& problem, const DeviceProperties& device);
void set_tiled(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device);

// Whether Toeplitz products (toeplitz.cuh) can compute the problem, and faster than FMA.
bool suits_toeplitz(const Filter2dProblem& problem, const DeviceProperties& device);
void set_toeplitz(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device);

// Taps in shared memory: rows of whole words; separable: one such row, then the column.
inline long long tap_bytes(const Filter2dProblem& problem) {
  const long long row =
      static_cast<long long>(filter2d_tap_words(problem.kernel_width, problem.dtype)) * word_elements(problem.dtype);
  const long long taps = problem.separable ? row + problem.kernel_height : row * problem.kernel_height;
  return round_up<long long>(taps * (problem.dtype == DType::float64 ? 8 : 4), kWordBytes);
}

// Whether adjacent channels are in the same sectors of memory.
inline bool has_channels_together(const Filter2dProblem& problem) {
  return problem.in_channels && !problem.has_adjacent_columns();
}

// Rows of strips of any height: the number measured to be fastest, or another where the busiest SM then has clearly
// less to do, as with few or low images. `blocks_of(strips_down)`: blocks of all planes; a strip's start costs as much
// as `start_rows`.
template <class BlocksOf>
int rows_of_strip(DType dtype, long long height, int start_rows, int clearly_less_percent,
                  const DeviceProperties& device, const BlocksOf& blocks_of) {
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  int best = 0;
  long long least = 0;
  const auto consider = [&](int most) {
    const long long strips_down = ceil_div<long long>(height, most);
    const long long rows = ceil_div<long long>(height, strips_down);  // all strips have the same height
    const long long cost = max_of<long long>(policy.strip_few_blocks,
                                             ceil_div<long long>(blocks_of(strips_down), device.multiprocessors)) *
                           (rows + start_rows);
    if (best == 0 || cost * 100 < least * clearly_less_percent) {
      best = static_cast<int>(rows);
      least = cost;
    }
  };
  consider(policy.strip_rows.of(dtype));
  for (int rows : policy.other_strip_rows) consider(rows);
  return best;
}

}  // namespace sluice
