#include "kernels/common/architectures.h"
#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/fourier/policy.h"

namespace sluice {
namespace {

constexpr long long kMostPositions = 1 << 29;  // of a row and around it, taps, rows and segments

// await_previous waits in no code for an earlier one.
constexpr int kBesideCapability = 90;

// Segments of a row as even as they come, with the filter in so many parts.
FourierPlan cut(const Conv1dProblem& problem, int parts) {
  FourierPlan plan;
  plan.parts = parts;
  plan.part_taps = ceil_div(problem.taps, parts);
  const long long outputs = problem.output_length;
  const long long most = (kFourierPoints - plan.part_taps + 1) / kSegmentMultiple * kSegmentMultiple;
  plan.segment = static_cast<int>(round_up<long long>(ceil_div(outputs, ceil_div(outputs, most)), kSegmentMultiple));
  plan.segments_per_row = ceil_div<long long>(outputs, plan.segment);
  plan.segments = problem.batch * plan.segments_per_row;
  plan.pairs = ceil_div(plan.segments, 2LL);
  return plan;
}

// Instructions that warps issue for all of it. Less than a block a multiprocessor takes no less time than one each.
double slots_of(const FourierPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const FourierPolicy& policy = policy_of(device, kFourierPolicies);
  const long long blocks = max_of<long long>(problem.channels * plan.pairs, device.multiprocessors);
  const double of_block =
      plan.parts == 1 ? policy.whole_slots : 1.0 * plan.parts * policy.part_slots + policy.pair_slots;
  const double spectra = static_cast<double>(problem.channels) * plan.parts * policy.part_slots;
  return (static_cast<double>(blocks) * of_block + spectra) * (kFourierThreads / 32.0) * policy.slack;
}

// Parts that leave a segment room in the points.
int least_parts(int taps) { return ceil_div(taps, kFourierPoints - kSegmentMultiple + 1); }

// More parts make longer segments.
FourierPlan best_cut(const Conv1dProblem& problem, const DeviceProperties& device) {
  const int least = least_parts(problem.taps);
  FourierPlan best = cut(problem, least);
  for (int parts = least + 1; parts <= min_of(2 * least + 1, problem.taps); ++parts) {
    const FourierPlan other = cut(problem, parts);
    if (slots_of(other, problem, device) < slots_of(best, problem, device)) best = other;
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
  if (fourier_workspace(problem.channels, least_parts(problem.taps)) > policy.most_workspace) return false;
  const FourierPlan plan = best_cut(problem, device);
  if (problem.channels * plan.segments >= kMostPositions ||
      fourier_workspace(problem.channels, plan.parts) > policy.most_workspace) {
    return false;
  }
  const double of_others =
      suits_long_filter(problem, device) ? long_filter_slots(problem, device) : depthwise_slots(problem, device);
  return slots_of(plan, problem, device) < of_others;
}

Conv1dPlan plan_fourier(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "fourier";
  plan.kernel = "fourier";
  plan.which = Conv1dMethod::fourier;
  plan.schedule = Schedule::direct;
  plan.reason = "auto: Fourier transforms, two segments of a channel a block; the taps' spectra by a kernel ahead";
  const FourierPlan& own = plan.fourier = best_cut(problem, device);
  plan.fourier.begins_beside = code_capability(device.compute_capability) >= kBesideCapability;
  plan.tile = own.segment;
  plan.threads = kFourierThreads;
  plan.shared_memory = kFourierSharedBytes;
  plan.workspace_bytes = fourier_workspace(problem.channels, own.parts);
  plan.alignment = plan.copy_width = size_of(problem.dtype);
  plan.resident_blocks = resident_blocks(plan, own.parts > 1 ? kFourierBlocksInParts : kFourierBlocksOfOne, device);
  plan.grid = problem.channels * own.pairs;
  check_grid(plan);
  return plan;
}

std::string describe(const FourierPlan& plan) {
  return std::to_string(kFourierPoints) + " points, segments of " + std::to_string(plan.segment) +
         " positions, the filter in " + std::to_string(plan.parts) + (plan.parts == 1 ? " part" : " parts");
}

}  // namespace sluice
