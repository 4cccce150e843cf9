#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/long_filter/policy.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr int kHalfBytes = 2;
constexpr long long kMostPositions = 1 << 30;  // positions of a padded row; rows and segments too
constexpr long long kMostWaves = 8;
constexpr long long kLeastSegments = 16;  // segments of a team with several waves, which fills its ring once for them

long long reach(const Conv1dProblem& problem) { return (problem.taps - 1LL) * min_of(problem.dilation, 1LL << 30) + 1; }

bool has_few_steps(const LongFilterPlan& plan) { return plan.which == LongFilterKernel::long_filter; }

// Unaligned rows share their first vector with the row before.
long long outputs_of_row(const Conv1dProblem& problem) {
  return problem.output_length + (problem.aligned ? 0 : kVectorOutputs - 1);
}

// Splits a row into even segments of whole warp tiles, and into more of them where teams would be idle.
void set_segments(LongFilterPlan& plan, const Conv1dProblem& problem, long long teams) {
  const long long rows = problem.batch * problem.channels, outputs = outputs_of_row(problem);
  const long long least = kOutputsPerWarp * plan.team;
  long long most = kLongFilterSegment * plan.team;
  while (most > least && rows * ceil_div(outputs, most) < teams) most /= 2;
  plan.segment = static_cast<int>(round_up<long long>(ceil_div(outputs, ceil_div(outputs, most)), kOutputsPerWarp));
  plan.segments_per_row = ceil_div<long long>(outputs, plan.segment);
  plan.segments = rows * plan.segments_per_row;
  // A row of one segment needs only its own outputs, rounded up to those summed at once.
  const long long made = round_up<long long>(outputs, outputs_at_once(has_few_steps(plan)));
  const long long in_stage = min_of<long long>(plan.segment, made);
  plan.stage_words = window_positions(static_cast<int>(in_stage), plan.steps) / word_elements(problem.dtype);
}

// Several waves of blocks where the segments are many. A kernel of another stream, such as NCCL's, may hold an SM. The
// blocks that find no room then wait for others to end: with one wave they double the kernel's time.
// `segments`: as many as all teams of a block take at a time count as one.
long long blocks_of(long long segments, long long wave) {
  const long long waves = min_of(kMostWaves, segments / (wave * kLeastSegments));
  return min_of(segments, wave * max_of(waves, 1LL));
}

// Chooses the deepest ring up to `deepest`, unless a shorter one lets more blocks be resident. `beside`: a block's
// other shared memory. `threads` stays 0 where not even two stages fit.
void set_ring(Conv1dPlan& plan, int deepest, long long stage_bytes, long long beside, const DeviceProperties& device) {
  for (int depth = deepest; depth >= 2; --depth) {
    const long long bytes = depth * stage_bytes + beside;
    if (bytes > most_dynamic_shared_memory(device)) continue;
    Conv1dPlan other = plan;
    other.threads = kLongFilterThreads;
    other.depth = depth;
    other.shared_memory = static_cast<int>(bytes);
    other.resident_blocks = resident_blocks(other, long_filter_blocks(plan.long_filter.which), device);
    if (other.resident_blocks > plan.resident_blocks) plan = other;
  }
}

// Channels-first: a ring for each team, deep enough for kBytesInFlight of an SM.
void set_row_rings(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const LongFilterPlan& own = plan.long_filter;
  const int teams = kLongFilterWarps / own.team, most = long_filter_blocks(own.which);
  const long long taps = has_few_steps(own) ? 0 : tap_bytes(own.steps);
  const long long stage_bytes = 1LL * own.stage_words * kWordBytes;
  const long long useful = min_of<long long>(own.segment, problem.output_length) * kHalfBytes;
  const long long ahead = ceil_div<long long>(kBytesInFlight, most * teams * useful);
  const int deepest = static_cast<int>(min_of<long long>(1 + ahead, kMaxDepth));
  set_ring(plan, deepest, teams * stage_bytes, teams * taps, device);
}

// `plan` for teams of `team` warps.
Conv1dPlan with_team(Conv1dPlan plan, int team, const Conv1dProblem& problem, const DeviceProperties& device) {
  LongFilterPlan& own = plan.long_filter;
  own.team = team;
  const long long warps = 1LL * device.multiprocessors * long_filter_blocks(own.which) * kLongFilterWarps;
  set_segments(own, problem, warps / team);
  set_row_rings(plan, problem, device);
  return plan;
}

constexpr const char* kTooMany = "the kernel takes fewer than 2^30 segments of rows";
constexpr const char* kDoesNotFit = "taps and two stages of their input must fit into shared memory";

void set_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  LongFilterPlan& own = plan.long_filter;
  own.steps = static_cast<int>(long_filter_steps(reach(problem)));
  own.which = own.steps <= kFewSteps ? LongFilterKernel::long_filter : LongFilterKernel::long_filter_many_steps;
  plan.reason =
      "auto: tensor cores, a row's windows against a Toeplitz matrix of its taps; asynchronous copies, a ring a warp";
  const Conv1dPlan alone = with_team(plan, 1, problem, device);
  plan = alone;
  // A block's warps share taps and halos where separate copies would lower the number of resident blocks.
  if (!has_few_steps(own) && alone.resident_blocks < long_filter_blocks(own.which)) {
    const Conv1dPlan shared = with_team(plan, kLongFilterWarps, problem, device);
    if (shared.resident_blocks > alone.resident_blocks) plan = shared;
  }
  if (plan.threads == 0) return refuse(plan, kDoesNotFit);
  if (own.segments >= kMostPositions) return refuse(plan, kTooMany);
  // Consecutive segments of a row or a channel keep its taps.
  const int teams = kLongFilterWarps / own.team;
  plan.grid = blocks_of(ceil_div<long long>(own.segments, teams), 1LL * device.multiprocessors * plan.resident_blocks);
  own.segments_per_team = own.segments / (plan.grid * teams);
  own.longer_teams = own.segments % (plan.grid * teams);
  plan.tile = own.segment;
}

void set_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  LongFilterPlan& own = plan.long_filter;
  own.which = LongFilterKernel::long_filter_channels;
  own.steps = static_cast<int>(long_filter_channel_steps(reach(problem)));
  own.whole_words = problem.whole_words;
  plan.reason =
      "auto: tensor cores, each channel's windows against a Toeplitz matrix of its taps; words of channels are "
      "transposed in shared memory";
  own.segment = problem.output_length <= kTileOutputs ? kTileOutputs : kOutputsPerWarp;
  own.stage_positions = window_positions(own.segment, own.steps);
  own.stage_words = kBlockWords * word_column_bytes(own.stage_positions) / kWordBytes;
  own.segments_per_row = ceil_div<long long>(problem.output_length, kOutputsPerWarp);
  own.channel_blocks = ceil_div<long long>(problem.channels, kBlockWords * kVectorOutputs);
  own.segments = problem.batch * own.segments_per_row * own.channel_blocks;
  set_ring(plan, /*deepest=*/3, 1LL * own.stage_words * kWordBytes,
           kLongFilterWarps * transposed_bytes(own.stage_positions, own.steps), device);
  if (plan.threads == 0) return refuse(plan, kDoesNotFit);
  if (own.segments >= kMostPositions) return refuse(plan, kTooMany);
  // Blocks keep their channels' taps where the channel blocks divide the grid.
  const long long blocks = blocks_of(own.segments, 1LL * device.multiprocessors * plan.resident_blocks);
  plan.grid = blocks < own.channel_blocks ? blocks : blocks / own.channel_blocks * own.channel_blocks;
  plan.tile = own.segment * kBlockWords * kVectorOutputs;
}

}  // namespace

bool suits_long_filter(const Conv1dProblem& problem, const DeviceProperties& device) {
  const LongFilterPolicy& policy = policy_of(device, kLongFilterPolicies);
  const bool is_half = size_of(problem.dtype) == kHalfBytes && problem.stride == 1;
  const bool is_countable = max_of(problem.length, problem.output_length) < kMostPositions &&
                            problem.padding < kMostPositions && problem.batch * problem.channels < kMostPositions;
  if (!is_half || !is_countable) return false;
  if (problem.in_channels) {
    const int least_taps = problem.whole_words ? policy.least_channel_taps : policy.least_gathered_channel_taps;
    return !problem.has_tensors && problem.taps >= least_taps && reach(problem) <= policy.most_channel_reach &&
           problem.channels >= policy.least_channels && problem.output_length >= policy.least_channel_length;
  }
  return problem.in_rows && problem.taps >= policy.least_taps && reach(problem) <= policy.most_reach &&
         problem.output_length >= policy.least_length;
}

Conv1dPlan plan_long_filter(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "long_filter";
  plan.which = Conv1dMethod::long_filter;
  plan.schedule = Schedule::primitives;
  if (problem.in_channels) {
    set_channels(plan, problem, device);
  } else {
    set_rows(plan, problem, device);
  }
  plan.kernel = name_of(plan.long_filter.which);
  plan.alignment = kWordBytes;
  const bool is_gathered = problem.in_channels && !problem.whole_words;
  plan.copy_width = is_gathered ? kHalfBytes : kWordBytes;
  if (plan.threads > 0) check_grid(plan);
  return plan;
}

double long_filter_issue_slots(const Conv1dProblem& problem, const DeviceProperties& device) {
  return policy_of(device, kLongFilterPolicies).work.of(problem);
}

std::string describe(const LongFilterPlan& plan) {
  const std::string products = std::to_string(plan.steps) + " tensor-core products of " +
                               std::to_string(kStepPositions) + " positions for each tile";
  if (plan.which == LongFilterKernel::long_filter_channels) {
    return "segments of " + std::to_string(plan.segment) + " positions of " +
           std::to_string(kBlockWords * kVectorOutputs) + " channels a block, " + products;
  }
  return "segments of " + std::to_string(plan.segment) + " positions a " + (plan.team > 1 ? "block, " : "warp, ") +
         products;
}

}  // namespace sluice
