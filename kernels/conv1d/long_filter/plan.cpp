#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/long_filter/policy.h"

namespace sluice {
namespace {

constexpr int kHalfBytes = 2;
constexpr long long kMostPositions = 1 << 30;  // of a row and around it, and rows and segments

long long reach(const Conv1dProblem& problem) { return (problem.taps - 1LL) * min_of(problem.dilation, 1LL << 30) + 1; }

// Rows whose outputs begin in the middle of 16 bytes have a first vector that is partly another's.
long long outputs_of_row(const Conv1dProblem& problem) {
  return problem.output_length + (problem.aligned ? 0 : kVectorOutputs - 1);
}

// A row in segments as even as groups come, and in more of them where warps would have nothing to do.
void set_segments(LongFilterPlan& plan, const Conv1dProblem& problem, long long warps) {
  const long long rows = problem.batch * problem.channels, outputs = outputs_of_row(problem);
  long long most = kLongFilterSegment;
  while (most > kGroupOutputs && rows * ceil_div(outputs, most) < warps) most /= 2;
  plan.segment = static_cast<int>(round_up<long long>(ceil_div(outputs, ceil_div(outputs, most)), kGroupOutputs));
  plan.segments_per_row = ceil_div<long long>(outputs, plan.segment);
  plan.segments = rows * plan.segments_per_row;
  plan.stage_words = window_positions(plan.segment / kGroupOutputs, plan.steps) / word_elements(problem.dtype);
}

// The ring that keeps kBytesInFlight under way, unless a shorter one lets more blocks be resident. No threads where not
// even two stages fit.
void set_ring(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const LongFilterPlan& own = plan.long_filter;
  const long long stage_bytes = 1LL * own.stage_words * kWordBytes;
  const long long tap_bytes = (own.steps + 1LL) * kStepBytes;  // one step's more are loaded, and not used
  const long long useful = min_of<long long>(own.segment, problem.output_length) * kHalfBytes;
  const long long ahead = ceil_div<long long>(kBytesInFlight, kLongFilterBlocks * kLongFilterWarps * useful);
  for (int depth = static_cast<int>(min_of<long long>(1 + ahead, kMaxDepth)); depth >= 2; --depth) {
    const long long bytes = kLongFilterWarps * (depth * stage_bytes + tap_bytes);
    if (bytes > most_dynamic_shared_memory(device)) continue;
    Conv1dPlan other = plan;
    other.threads = kLongFilterThreads;
    other.depth = depth;
    other.shared_memory = static_cast<int>(bytes);
    other.resident_blocks = resident_blocks(other, kLongFilterBlocks, device);
    if (other.resident_blocks > plan.resident_blocks) plan = other;
  }
}

}  // namespace

bool suits_long_filter(const Conv1dProblem& problem, const DeviceProperties& device) {
  const LongFilterPolicy& policy = policy_of(device, kLongFilterPolicies);
  return size_of(problem.dtype) == kHalfBytes && problem.in_rows && problem.stride == 1 &&
         problem.taps >= policy.least_taps && reach(problem) <= policy.most_reach &&
         problem.output_length >= policy.least_length &&
         max_of(problem.length, problem.output_length) < kMostPositions && problem.padding < kMostPositions &&
         problem.batch * problem.channels < kMostPositions;
}

Conv1dPlan plan_long_filter(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "long_filter";
  plan.kernel = "long_filter";
  plan.which = Conv1dMethod::long_filter;
  plan.schedule = Schedule::primitives;
  plan.reason =
      "auto: tensor cores, a row's windows against a Toeplitz matrix of its taps; asynchronous copies, a ring a warp";
  LongFilterPlan& own = plan.long_filter;
  own.steps = static_cast<int>(long_filter_steps(reach(problem)));
  set_segments(own, problem, 1LL * device.multiprocessors * kLongFilterBlocks * kLongFilterWarps);
  set_ring(plan, problem, device);
  if (own.segments >= kMostPositions) {
    refuse(plan, "the kernel counts segments of rows up to 2^30");
    return plan;
  }
  if (plan.threads == 0) {
    refuse(plan, "the taps of a warp's row and two stages of its input must fit into shared memory");
    return plan;
  }
  // One wave: warps that follow each other in a row keep its taps.
  const long long warps = 1LL * device.multiprocessors * plan.resident_blocks * kLongFilterWarps;
  own.segments_per_warp = ceil_div(own.segments, warps);
  plan.grid = ceil_div(own.segments, own.segments_per_warp * kLongFilterWarps);
  plan.tile = own.segment;
  plan.alignment = plan.copy_width = kWordBytes;
  check_grid(plan);
  return plan;
}

std::string describe(const LongFilterPlan& plan) {
  return "segments of " + std::to_string(plan.segment) + " positions a warp, " + std::to_string(plan.steps) +
         " tensor-core products of " + std::to_string(kStepPositions) + " positions for each tile";
}

}  // namespace sluice
