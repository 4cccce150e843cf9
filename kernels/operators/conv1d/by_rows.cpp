#include "kernels/operators/conv1d/by_rows.h"

#include "kernels/operators/conv1d/depthwise/depthwise.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {
namespace {

// The limits of plans, a row an architecture.
struct ByRowsPolicy {
  int compute_capability;

  ByElement least_taps;  // taps of kernels that sum by windows in registers, or element by element
  // With a chain before the convolution these kernels have no windows, and gather channels that are not whole words.
  ByElement least_taps_pre, least_gathered_taps_pre;
  int least_word_taps;       // taps of the long filters' kernel for words of channels
  long long least_products;  // products: fewer take less time than more launches
};

constexpr ByRowsPolicy kByRowsPolicies[] = {
    {
        // One NVIDIA H100, us by channels / by rows and two copies. 8 x 1023 x 2048, bfloat16: 48 taps 101 / 89, 128
        // taps 228 / 96; 8 x 1024 x 2048: 128 taps 91 / 97, 192 taps 158 / 105; float32: 128 taps 209 / 268, 192 taps
        // 289 / 244. With SiLU before: float32, 24 taps 150 / 173, 48 taps 241 / 198; 1023 channels, 20 taps 275 / 173.
        .compute_capability = 90,
        .least_taps = {.half = 56, .wider = 192},
        .least_taps_pre = {.half = 24, .wider = 40},
        .least_gathered_taps_pre = {.half = 16, .wider = 16},
        .least_word_taps = 160,
        .least_products = 50'000'000,
    },
};

// Whether every operand is the same at all positions: rows would read others an element of each row of channels at a
// time.
bool is_same_at_all_positions(const Program& program, const Operand<3>* operands) {
  for (int i = 0; i < program.operands; ++i) {
    if (operands[i].strides[2] != 0) return false;
  }
  return true;
}

Operand<3> rows_of(const Operand<3>& operand, long long channels, long long length) {
  const long long pitch = TransposeParams::pitch(length);
  return {.data = nullptr, .dtype = operand.dtype, .strides = {channels * pitch, pitch, 1}};
}

Conv1dParams with_rows(const Conv1dParams& params) {
  Conv1dParams rows = params;
  rows.input = rows_of(params.input, params.channels, params.length);
  rows.output = rows_of(params.output, params.channels, params.output_length);
  return rows;
}

}  // namespace

TransposeParams input_to_rows(const Conv1dParams& params, const Operand<3>& rows) {
  return {.from = swapped(params.input),
          .to = swapped(rows),
          .batch = params.batch,
          .rows = params.length,
          .columns = params.channels};
}

TransposeParams output_from_rows(const Conv1dParams& params, const Operand<3>& rows, const Operand<3>& output) {
  return {.from = rows, .to = output, .batch = params.batch, .rows = params.channels, .columns = params.output_length};
}

std::optional<Conv1dParams> faster_by_rows(const Conv1dParams& params, const ScheduleRequest& request,
                                           const DeviceProperties& device) {
  // What rules out nearly all calls comes first.
  const bool is_in_channels = params.output.strides[1] == 1 && params.input.strides[1] == 1 && params.channels > 1;
  if (!is_in_channels || params.multiplier > 1 || params.stride > 1 || size_of(params.input.dtype) > 4 ||
      !request.automatic || request.depth > 0) {
    return std::nullopt;
  }
  if (!is_same_at_all_positions(params.pre, params.pre_operands) ||
      !is_same_at_all_positions(params.post, params.post_operands)) {
    return std::nullopt;
  }
  const ByRowsPolicy& policy = policy_of(device, kByRowsPolicies);
  const double products = static_cast<double>(params.batch) * static_cast<double>(params.channels) *
                          static_cast<double>(params.output_length) * params.taps;
  if (products < static_cast<double>(policy.least_products)) return std::nullopt;
  const Conv1dProblem problem = problem_of(params);
  const bool by_words = problem.whole_words && suits_long_filter(problem, device);
  const ByElement& least_pre = problem.whole_words ? policy.least_taps_pre : policy.least_gathered_taps_pre;
  const ByElement& least = problem.has_pre ? least_pre : policy.least_taps;
  if (params.taps < (by_words ? policy.least_word_taps : least.of(problem.dtype))) return std::nullopt;
  const Conv1dParams rows = with_rows(params);
  const Conv1dPlan plan = plan_conv1d(problem_of(rows), request, device, /*linked=*/true);
  const bool suits = plan.which != Conv1dMethod::depthwise || is_of(plan.depthwise.which, DepthwiseFamily::windows);
  return plan.threads > 0 && suits ? std::optional(rows) : std::nullopt;
}

}  // namespace sluice
