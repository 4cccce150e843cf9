#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/few_outputs/policy.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr int kHalfBytes = 2, kWordPositions = kWordBytes / kHalfBytes;
constexpr long long kMostPositions = 1 << 30;  // positions of a padded row, and tiles
constexpr int kLeastCapability = 80;           // has mma.sync of bfloat16

long long columns_of(const Conv1dProblem& problem) { return problem.channels * problem.taps; }

long long reach(const Conv1dProblem& problem) { return (problem.taps - 1LL) * min_of(problem.dilation, 1LL << 30) + 1; }

int shared_bytes(const Conv1dProblem& problem, int columns) {
  return weight_bytes(static_cast<int>(problem.input_channels), columns) +
         static_cast<int>(columns_of(problem)) * kSumPitch * static_cast<int>(sizeof(float));
}

int rounded_columns(const Conv1dProblem& problem) {
  return columns_of(problem) <= kFewColumns ? kFewColumns : kMostColumns;
}

// Whole waves of even tiles, each a multiple of eight outputs.
void set_tiles(FewOutputsPlan& plan, const Conv1dProblem& problem, long long blocks, int least) {
  const int around = static_cast<int>(reach(problem)) - 1 + plan.shift;
  const long long most = (kFewOutputsPositions - around) / kWordPositions * kWordPositions;
  const long long tiles = problem.batch * ceil_div<long long>(problem.output_length, most);
  const long long of_row = round_up(tiles, blocks) / problem.batch;
  const long long even = round_up<long long>(ceil_div(problem.output_length, max_of(of_row, 1LL)), kWordPositions);
  plan.outputs = static_cast<int>(min_of(max_of<long long>(even, least), most));
  plan.tiles_of_row = ceil_div<long long>(problem.output_length, plan.outputs);
  plan.tiles = problem.batch * plan.tiles_of_row;
}

}  // namespace

bool suits_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device) {
  const FewOutputsPolicy& policy = policy_of(device, kFewOutputsPolicies);
  const bool has_words = problem.input_by_channels || problem.input_by_positions;
  const bool fits = device.compute_capability >= kLeastCapability && size_of(problem.dtype) == kHalfBytes &&
                    problem.groups == 1 && problem.stride == 1 && !problem.interleaves && has_words &&
                    problem.channels <= policy.most_channels && problem.taps > 1 && problem.taps <= kMostColumns &&
                    columns_of(problem) <= kMostColumns && problem.input_channels < kMostPositions &&
                    problem.batch < kMostPositions && problem.padding >= 0 && problem.padding < kMostPositions &&
                    max_of(problem.length, problem.output_length) < kMostPositions;
  if (!fits || problem.input_channels < policy.least_input_channels || reach(problem) > policy.most_reach) return false;
  if (problem.input_channels > most_dynamic_shared_memory(device)) return false;
  return problem.batch * problem.output_length >= policy.least_positions &&
         problem.batch * problem.output_length < kMostPositions * policy.least_tile &&
         shared_bytes(problem, rounded_columns(problem)) <= most_dynamic_shared_memory(device);
}

Conv1dPlan plan_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "few_outputs";
  plan.which = Conv1dMethod::few_outputs;
  plan.schedule = Schedule::direct;
  plan.reason =
      "auto: tensor cores, a column for each tap of each output channel; the input is read once, straight into "
      "registers";
  FewOutputsPlan& own = plan.few_outputs;
  own.columns = rounded_columns(problem);
  own.by_positions = !problem.input_by_channels;
  own.whole_words = problem.fetch == (own.by_positions ? DenseFetch::positions : DenseFetch::channels);
  plan.kernel = name_of(kernel_of(own));
  if (own.by_positions) own.shift = static_cast<int>(-problem.padding & (kWordPositions - 1));
  plan.threads = kFewOutputsThreads;
  plan.shared_memory = shared_bytes(problem, own.columns);
  plan.resident_blocks = resident_blocks(plan, few_outputs_blocks(own.columns), device);
  const long long blocks = 1LL * device.multiprocessors * plan.resident_blocks;
  set_tiles(own, problem, blocks, policy_of(device, kFewOutputsPolicies).least_tile);
  plan.grid = min_of(own.tiles, blocks);
  plan.tile = own.outputs * static_cast<int>(problem.channels);
  plan.alignment = plan.copy_width = kWordBytes;
  check_grid(plan);
  return plan;
}

FewOutputsKernel kernel_of(const FewOutputsPlan& plan) {
  if (plan.by_positions) {
    return plan.columns == kFewColumns ? FewOutputsKernel::few_outputs_positions_16
                                       : FewOutputsKernel::few_outputs_positions_32;
  }
  return plan.columns == kFewColumns ? FewOutputsKernel::few_outputs_channels_16
                                     : FewOutputsKernel::few_outputs_channels_32;
}

std::string describe(const FewOutputsPlan& plan) {
  return "tiles of " + std::to_string(plan.outputs) + " positions, " + std::to_string(plan.columns) +
         " columns; words of the input's " + (plan.by_positions ? "positions" : "channels") +
         (plan.whole_words ? "" : ", shifted");
}

}  // namespace sluice
