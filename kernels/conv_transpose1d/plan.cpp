// Which taps and inputs an output phase has, and which convolutions go by phases.
#include <bit>
#include <numeric>
#include <utility>

#include "kernels/common/int_math.h"
#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv_transpose1d/conv_transpose1d.h"
#include "kernels/conv_transpose1d/policy.h"

namespace sluice {
namespace {

constexpr AtenReason kGroups("sluice's tensor-core kernels for transposed convolutions have no groups");
constexpr AtenReason kNoTap("stride and dilation have a divisor in common that leaves most results without a tap");
constexpr AtenReason kLong("the tensor-core kernels count results and weights up to 2^30");
constexpr long long kMostResults = 1 << 30;
constexpr AtenReason kManyPhases("each output phase would be a launch, and there are many");
constexpr AtenReason kNoTaps("some results have no tap, or no input");
constexpr AtenReason kFewResults("each output phase would be a launch, and there are few results");

long long floor_of(long long value, long long divisor) {
  return value / divisor - (value % divisor != 0 && value < 0 ? 1 : 0);
}

template <int Rank>
void move(Operand<Rank>& operand, int dimension, long long places) {
  operand.data = static_cast<char*>(operand.data) + places * operand.strides[dimension] * size_of(operand.dtype);
}

// Rounded up, of any dividend.
long long ceil_of(long long value, long long divisor) { return -floor_of(-value, divisor); }

bool lies_by_positions(const Conv1dTensors& whole) { return whole.output.strides[1] != 1 || whole.channels == 1; }

long long common_divisor(const Conv1dTensors& whole) { return std::gcd(whole.stride, whole.dilation); }

// The inputs at which the first and the last results of some phases are, and those ahead of the first that their taps
// reach.
struct Positions {
  long long first, last, ahead;
};

Positions positions_of(const Conv1dTensors& whole, const PolyphaseComponent& part) {
  const long long last_phase = part.first_phase + part.phases - 1, cropped = whole.padding - part.offset;
  const long long first = ceil_of(cropped - last_phase * whole.dilation, whole.stride);
  return {.first = first,
          .last = floor_of(whole.output_length - 1 + cropped - part.first_phase * whole.dilation, whole.stride),
          .ahead = (max_of(part.taps, 1) - 1) * (whole.dilation / common_divisor(whole)) - first};
}

// The number below `modulus` whose product with `value`, which has no divisor in common with it, is 1 more than a
// multiple of it: Euclid's algorithm.
long long inverse(long long value, long long modulus) {
  long long rest = modulus, next = value % modulus, factor = 0, next_factor = 1;
  while (next != 0) {
    const long long times = rest / next;
    rest = std::exchange(next, rest - times * next);
    factor = std::exchange(next_factor, factor - times * next_factor);
  }
  return ((factor % modulus) + modulus) % modulus;
}

// The inputs that a phase reaches, and the zeros ahead of the first one.
struct Reach {
  long long first, length, padding;
};

Reach reach_of(const OutputPhase& phase, long long inputs) {
  const long long halo = (phase.taps - 1) * phase.dilation, start = phase.offset - halo;
  const long long first = max_of(0LL, start), end = min_of(inputs, start + phase.outputs + halo);
  return {.first = first, .length = end - first, .padding = first - start};
}

}  // namespace

OutputPhase output_phase(const Conv1dTensors& whole, long long first) {
  const long long divisor = std::gcd(whole.stride, whole.dilation), step = whole.stride / divisor;
  OutputPhase phase{.first = first,
                    .outputs = ceil_div(whole.output_length - first, whole.stride),
                    .first_tap = 0,
                    .tap_step = static_cast<int>(step),
                    .taps = 0,
                    .dilation = whole.dilation / divisor,
                    .offset = 0};
  // The taps k with k dilation = first + padding, but for multiples of the stride: every step-th one.
  const long long ahead = first + whole.padding;
  if (ahead % divisor != 0) return phase;
  const long long tap = ahead / divisor % step * inverse(phase.dilation, step) % step;
  if (tap >= whole.taps) return phase;
  phase.first_tap = static_cast<int>(tap);
  phase.taps = static_cast<int>(ceil_div(whole.taps - tap, step));
  phase.offset = (ahead - tap * whole.dilation) / whole.stride;
  return phase;
}

long long output_phases(const Conv1dTensors& whole) { return min_of(whole.stride, whole.output_length); }

Conv1dParams phase_params(const Conv1dParams& whole, const OutputPhase& phase) {
  Conv1dParams params = whole;
  const int last_tap = phase.first_tap + (phase.taps - 1) * phase.tap_step;
  move(params.weight, 1, last_tap);
  params.weight.strides[1] *= -phase.tap_step;
  if (params.dense.input_channels > 0) {
    move(params.dense.weight, 2, last_tap);
    params.dense.weight.strides[2] *= -phase.tap_step;
  }
  const auto take_phase = [&](Operand<3>& results) {
    move(results, 2, phase.first);
    results.strides[2] *= whole.stride;
  };
  take_phase(params.output);
  for (int k = 0; k < whole.post.operands; ++k) take_phase(params.post_operands[k]);
  params.output_length = phase.outputs;
  params.taps = phase.taps;
  params.stride = 1;
  params.dilation = phase.dilation;
  const Reach reach = reach_of(phase, whole.length);
  params.padding = reach.padding;
  params.length = reach.length;
  move(params.input, 2, reach.first);
  for (int k = 0; k < whole.pre.operands; ++k) move(params.pre_operands[k], 2, reach.first);
  return params;
}

PolyphaseComponents polyphase_components(const Conv1dTensors& whole) {
  const int common = static_cast<int>(common_divisor(whole)), phases = static_cast<int>(whole.stride) / common;
  const int least = whole.taps / phases, longer = whole.taps % phases;
  PolyphaseComponents found{};
  const auto add = [&](const PolyphaseComponent& part) {
    const Positions positions = positions_of(whole, part);
    if (part.phases > 0 && positions.first <= positions.last) found.of[found.count++] = part;
  };
  add({.first_phase = 0, .phases = longer, .taps = least + 1});
  add({.first_phase = longer, .phases = phases - longer, .taps = least});
  for (int offset = 1; offset < common; ++offset)
    add({.first_phase = 0, .phases = phases, .taps = 0, .offset = offset});
  return found;
}

bool interleaves_positions(const Conv1dTensors& whole) {
  return lies_by_positions(whole) && whole.taps % whole.stride == 0 && whole.stride <= kMostInterleavedPhases &&
         interleaves_positions(whole.stride, whole.dilation);
}

bool turns_results(const Conv1dTensors& whole) {
  return lies_by_positions(whole) && whole.channels > 1 && !interleaves_positions(whole);
}

const char* not_interleaved_because(const Conv1dTensors& whole) {
  const long long weights = whole.channels * (whole.taps + whole.stride), results = whole.output_length + whole.padding;
  if (common_divisor(whole) > kMostCommonDivisor) return kNoTap;
  const long long longest = results + (whole.taps + whole.stride) * whole.dilation;
  if (max_of(longest, weights + kRowGroup * (whole.taps + whole.stride)) >= kMostResults) return kLong;
  return nullptr;
}

Conv1dParams interleaved_params(const Conv1dParams& whole, const PolyphaseComponent& part) {
  const Positions positions = positions_of(whole, part);
  Conv1dParams params = whole;
  Interleave& own = params.interleave;
  own = {.phases = part.phases,
         .first_phase = part.first_phase,
         .stride = static_cast<int>(whole.stride),
         .step = static_cast<int>(whole.dilation),
         .crop = static_cast<int>(whole.padding - part.offset - whole.stride * positions.first),
         .tap_step = static_cast<int>(whole.stride / common_divisor(whole)),
         .channels = static_cast<int>(whole.channels),
         .length = static_cast<int>(whole.output_length),
         .by_positions = interleaves_positions(whole)};
  own.phase_bits = std::bit_width(static_cast<unsigned>(own.phases)) - 1;
  own.by_row_channels = FastDivisor(own.row_channels());
  if (whole.channels == 1 && !own.by_positions) params.output.strides[1] = 1;  // which no second channel is at
  params.dense.weight_taps = part.taps > 0 ? whole.taps : 0;
  if (part.taps == 0) params.dense.input_channels = min_of(params.dense.input_channels, 1LL * kPieceElements);
  params.channels = own.rows();
  params.output_length = positions.last - positions.first + 1;
  params.multiplier = 1;
  params.taps = max_of(part.taps, 1);
  params.stride = 1;
  params.dilation = whole.dilation / common_divisor(whole);
  params.padding = max_of(positions.ahead, 0LL);
  // Inputs ahead of those that reach a result, or all of them, are left away.
  const long long left_away = min_of(max_of(-positions.ahead, 0LL), whole.length);
  params.length = part.taps > 0 ? whole.length - left_away : 0;
  move(params.input, 2, left_away);
  for (int k = 0; k < whole.pre.operands; ++k) move(params.pre_operands[k], 2, left_away);
  return params;
}

const char* transposed_by_aten(const Conv1dTensors& whole, long long groups, bool is_depthwise) {
  if (groups != 1 && !is_depthwise) return kGroups;
  if (whole.stride > 1 && !is_depthwise) return not_interleaved_because(whole);
  if (output_phases(whole) > kMostPhases) return kManyPhases;
  for (long long first = 0; first < output_phases(whole); ++first) {
    const OutputPhase phase = output_phase(whole, first);
    if (phase.taps == 0 || reach_of(phase, whole.length).length < 1) return kNoTaps;
  }
  return nullptr;
}

const char* bound_by_launches(const Conv1dParams& whole) {
  if (size_of(whole.input.dtype) != 2) return nullptr;  // aten adds other types in float64
  const long long results = whole.batch * whole.channels * whole.output_length;
  const long long by_aten = kAtenLaunches + (whole.pre.empty() ? 0 : 1) + results / kResultsOfLaunch;
  if (output_phases(whole) > by_aten) return kFewResults;
  return nullptr;
}

}  // namespace sluice
