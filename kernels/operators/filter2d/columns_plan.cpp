// Plans of a thread for each column (columns.cuh).
#include "kernels/operators/filter2d/direct_plans.h"

namespace sluice {
namespace {

// Channels of a row of positions: all of a channels-last image's, or whole sectors of them, unless the windows would
// reach too far.
int interleaved_channels(const Filter2dProblem& problem) {
  if (!problem.in_channels || problem.has_adjacent_columns()) return 1;
  const int most = column_threads(problem.kernel_width) / (problem.kernel_width - 1);
  if (problem.channels <= most) return static_cast<int>(problem.channels);
  const long long groups = ceil_div<long long>(problem.channels, most);
  return static_cast<int>(min_of<long long>(round_up<long long>(ceil_div(problem.channels, groups), 8), most));
}

long long positions_of(const Filter2dProblem& problem) {
  return (problem.output_width + problem.kernel_width - 1) * interleaved_channels(problem);
}
long long groups_of(const Filter2dProblem& problem) {
  return ceil_div<long long>(problem.channels, interleaved_channels(problem));
}

}  // namespace

bool suits_columns(const Filter2dProblem& problem) {
  const int side = problem.kernel_height, most = problem.sampling.bytes ? 5 : 9;
  if (side != problem.kernel_width || side % 2 == 0 || side < 3 || side > most) return false;
  if (problem.separable || problem.dtype == DType::float64 || !problem.sampling.have_unit_steps() ||
      !problem.has_small_planes) {
    return false;
  }
  // 32-bit numbers hold all positions and rows.
  constexpr long long kMost = 1LL << 30;
  if (problem.output_width >= kMost || problem.output_height >= kMost || problem.channels >= kMost) return false;
  const long long row = positions_of(problem), planes = problem.batch * groups_of(problem);
  return problem.batch < kMost && row < kMost && planes < kMost && row * planes < kMost;
}

void set_columns(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  plan.interleaved = interleaved_channels(problem);
  plan.positions = positions_of(problem);
  plan.groups = groups_of(problem);
  const int threads = column_threads(problem.kernel_height);
  const long long across = ceil_div<long long>(problem.batch * plan.groups * plan.positions, threads);
  const int halo = problem.kernel_height - 1;
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  plan.strip_rows =
      rows_of_strip(problem.dtype, problem.output_height, policy.column_start_rows + halo,
                    policy.column_clearly_less_percent, device, [&](long long down) { return across * down; });
  plan.strips_down = ceil_div<long long>(problem.output_height, plan.strip_rows);
  plan.threads = threads;
  plan.tile = threads * plan.strip_rows;
  const int pitch = threads + halo * plan.interleaved;
  plan.shared_memory = 2 * column_rows(problem.kernel_height) * pitch * static_cast<int>(sizeof(float));
  plan.grid = across * plan.strips_down;
}

}  // namespace sluice
