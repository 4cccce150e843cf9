#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/fourier/policy.h"
#include "kernels/shared/common/architectures.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr long long kMostPositions = 1 << 29;  // positions of a padded row; taps, rows and segments too

// Even segments of a row for a filter of `partitions`.
FourierPlan cut(const Conv1dProblem& problem, int partitions) {
  FourierPlan plan;
  plan.partitions = partitions;
  plan.partition_taps = ceil_div(problem.taps, partitions);
  const long long outputs = problem.output_length;
  const long long most = (kFourierPoints - plan.partition_taps + 1) / kSegmentMultiple * kSegmentMultiple;
  plan.segment = static_cast<int>(round_up<long long>(ceil_div(outputs, ceil_div(outputs, most)), kSegmentMultiple));
  plan.segments_per_row = ceil_div<long long>(outputs, plan.segment);
  plan.segments = problem.batch * plan.segments_per_row;
  plan.pairs = ceil_div(plan.segments, 2LL);
  return plan;
}

// Instructions that warps issue for all segments. Less than a block for each SM takes as long as one each.
double issue_slots_of(const FourierPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const FourierPolicy& policy = policy_of(device, kFourierPolicies);
  const long long blocks = max_of<long long>(problem.channels * plan.pairs, device.multiprocessors);
  const double of_block = plan.partitions == 1
                              ? policy.whole_issue_slots
                              : 1.0 * plan.partitions * policy.partition_slots + policy.pair_issue_slots;
  const double spectra = static_cast<double>(problem.channels) * plan.partitions * policy.partition_slots;
  return (static_cast<double>(blocks) * of_block + spectra) * (kFourierThreads / 32.0) * policy.slack;
}

// The fewest partitions with which a segment fits into the points.
int least_partitions(int taps) { return ceil_div(taps, kFourierPoints - kSegmentMultiple + 1); }

// More partitions make longer segments.
FourierPlan best_cut(const Conv1dProblem& problem, const DeviceProperties& device) {
  const int least = least_partitions(problem.taps);
  FourierPlan best = cut(problem, least);
  for (int partitions = least + 1; partitions <= min_of(2 * least + 1, problem.taps); ++partitions) {
    const FourierPlan other = cut(problem, partitions);
    if (issue_slots_of(other, problem, device) < issue_slots_of(best, problem, device)) best = other;
  }
  return best;
}

}  // namespace

bool suits_fourier(const Conv1dProblem& problem, const DeviceProperties& device) {
  const FourierPolicy& policy = policy_of(device, kFourierPolicies);
  const bool fits = problem.dtype != DType::float64 && problem.in_rows && problem.stride == 1 &&
                    problem.dilation == 1 && problem.taps < kMostPositions && problem.padding < kMostPositions &&
                    max_of(problem.length, problem.output_length) < kMostPositions &&
                    problem.batch * problem.channels < kMostPositions;
  if (!fits || problem.taps < policy.least_taps.of(problem.dtype)) return false;
  if (fourier_workspace(problem.channels, least_partitions(problem.taps)) > policy.most_workspace) return false;
  const FourierPlan plan = best_cut(problem, device);
  if (problem.channels * plan.segments >= kMostPositions ||
      fourier_workspace(problem.channels, plan.partitions) > policy.most_workspace) {
    return false;
  }
  const double of_others = suits_long_filter(problem, device) ? long_filter_issue_slots(problem, device)
                                                              : depthwise_issue_slots(problem, device);
  return issue_slots_of(plan, problem, device) < of_others;
}

Conv1dPlan plan_fourier(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "fourier";
  plan.which = Conv1dMethod::fourier;
  plan.schedule = Schedule::direct;
  plan.reason =
      "auto: Fourier transforms, two segments of a channel per block; a first kernel computes the taps' spectra";
  const FourierPlan& own = plan.fourier = best_cut(problem, device);
  plan.kernel = name_of(kernel_of(own));
  plan.fourier.begins_beside = can_start_beside(device.compute_capability);
  plan.tile = own.segment;
  plan.threads = kFourierThreads;
  plan.shared_memory = kFourierSharedBytes;
  plan.workspace_bytes = fourier_workspace(problem.channels, own.partitions);
  plan.alignment = plan.copy_width = size_of(problem.dtype);
  plan.resident_blocks =
      resident_blocks(plan, own.partitions > 1 ? kFourierBlocksPartitioned : kFourierBlocksOfOne, device);
  plan.grid = problem.channels * own.pairs;
  check_grid(plan);
  return plan;
}

std::string describe(const FourierPlan& plan) {
  return std::to_string(kFourierPoints) + " points, segments of " + std::to_string(plan.segment) +
         " positions, the filter in " + std::to_string(plan.partitions) +
         (plan.partitions == 1 ? " partition" : " partitions");
}

}  // namespace sluice
