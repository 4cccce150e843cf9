// The taps and inputs of polyphase components, and which convolutions are computed by them.
#include <bit>
#include <numeric>
#include <utility>

#include "kernels/operators/conv1d/aten_reason.h"
#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "kernels/operators/conv_transpose1d/policy.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr AtenReason kGroups("sluice's tensor-core kernels for transposed convolutions do not support groups");
constexpr AtenReason kNoTap("a common divisor of stride and dilation leaves most results without a tap");
constexpr AtenReason kLong("the tensor-core kernels take fewer than 2^30 results and weights");
constexpr long long kMostResults = 1 << 30;
constexpr AtenReason kManyComponents("each polyphase component needs a launch, and there are many components");
constexpr AtenReason kNoTaps("some results have no tap, or no input");
constexpr AtenReason kFewResults("each polyphase component needs a launch, and there are few results");

long long floor_of(long long value, long long divisor) {
  return value / divisor - (value % divisor != 0 && value < 0 ? 1 : 0);
}

template <int Rank>
void move(Operand<Rank>& operand, int dimension, long long elements) {
  operand.data = static_cast<char*>(operand.data) + elements * operand.strides[dimension] * size_of(operand.dtype);
}

// Rounded up, for any dividend.
long long ceil_of(long long value, long long divisor) { return -floor_of(-value, divisor); }

bool is_channels_first(const Conv1dTensors& whole) { return whole.output.strides[1] != 1 || whole.channels == 1; }

long long common_divisor(const Conv1dTensors& whole) { return std::gcd(whole.stride, whole.dilation); }

// The input positions of the first and the last results of a component range, and the inputs before the first that its
// taps reach.
struct Positions {
  long long first, last, ahead;
};

Positions positions_of(const Conv1dTensors& whole, const ComponentRange& range) {
  const long long last_component = range.first_component + range.components - 1, cropped = whole.padding - range.offset;
  const long long first = ceil_of(cropped - last_component * whole.dilation, whole.stride);
  return {.first = first,
          .last = floor_of(whole.output_length - 1 + cropped - range.first_component * whole.dilation, whole.stride),
          .ahead = (max_of(range.taps, 1) - 1) * (whole.dilation / common_divisor(whole)) - first};
}

// The inverse of `value` modulo `modulus`, which are coprime: Euclid's algorithm.
long long inverse(long long value, long long modulus) {
  long long rest = modulus, next = value % modulus, factor = 0, next_factor = 1;
  while (next != 0) {
    const long long times = rest / next;
    rest = std::exchange(next, rest - times * next);
    factor = std::exchange(next_factor, factor - times * next_factor);
  }
  return ((factor % modulus) + modulus) % modulus;
}

// The inputs that a component reaches, and the zeros before the first input.
struct Reach {
  long long first, length, padding;
};

Reach reach_of(const PolyphaseComponent& component, long long inputs) {
  const long long halo = (component.taps - 1) * component.dilation, start = component.offset - halo;
  const long long first = max_of(0LL, start), end = min_of(inputs, start + component.outputs + halo);
  return {.first = first, .length = end - first, .padding = first - start};
}

}  // namespace

PolyphaseComponent polyphase_component(const Conv1dTensors& whole, long long first) {
  const long long divisor = std::gcd(whole.stride, whole.dilation), step = whole.stride / divisor;
  PolyphaseComponent component{.first = first,
                               .outputs = ceil_div(whole.output_length - first, whole.stride),
                               .first_tap = 0,
                               .tap_step = static_cast<int>(step),
                               .taps = 0,
                               .dilation = whole.dilation / divisor,
                               .offset = 0};
  // The taps k with k dilation = first + padding modulo the stride: every step-th one.
  const long long ahead = first + whole.padding;
  if (ahead % divisor != 0) return component;
  const long long tap = ahead / divisor % step * inverse(component.dilation, step) % step;
  if (tap >= whole.taps) return component;
  component.first_tap = static_cast<int>(tap);
  component.taps = static_cast<int>(ceil_div(whole.taps - tap, step));
  component.offset = (ahead - tap * whole.dilation) / whole.stride;
  return component;
}

long long component_count(const Conv1dTensors& whole) { return min_of(whole.stride, whole.output_length); }

Conv1dParams component_params(const Conv1dParams& whole, const PolyphaseComponent& component) {
  Conv1dParams params = whole;
  const int last_tap = component.first_tap + (component.taps - 1) * component.tap_step;
  move(params.weight, 1, last_tap);
  params.weight.strides[1] *= -component.tap_step;
  if (params.dense.input_channels > 0) {
    move(params.dense.weight, 2, last_tap);
    params.dense.weight.strides[2] *= -component.tap_step;
  }
  const auto take_component = [&](Operand<3>& results) {
    move(results, 2, component.first);
    results.strides[2] *= whole.stride;
  };
  take_component(params.output);
  for (int k = 0; k < whole.post.operands; ++k) take_component(params.post_operands[k]);
  params.output_length = component.outputs;
  params.taps = component.taps;
  params.stride = 1;
  params.dilation = component.dilation;
  const Reach reach = reach_of(component, whole.length);
  params.padding = reach.padding;
  params.length = reach.length;
  move(params.input, 2, reach.first);
  for (int k = 0; k < whole.pre.operands; ++k) move(params.pre_operands[k], 2, reach.first);
  return params;
}

std::array<ComponentRange, 2> ranges_by_taps(const Conv1dTensors& whole) {
  const long long components = whole.stride / common_divisor(whole);
  const auto least = static_cast<int>(whole.taps / components), longer = static_cast<int>(whole.taps % components);
  return {
      ComponentRange{.first_component = 0, .components = longer, .taps = least + 1},
      ComponentRange{.first_component = longer, .components = static_cast<int>(components - longer), .taps = least}};
}

ComponentRanges component_ranges(const Conv1dTensors& whole) {
  const int common = static_cast<int>(common_divisor(whole)), components = static_cast<int>(whole.stride) / common;
  ComponentRanges found{};
  const auto add = [&](const ComponentRange& range) {
    const Positions positions = positions_of(whole, range);
    if (range.components > 0 && positions.first <= positions.last) found.of[found.count++] = range;
  };
  for (const ComponentRange& range : ranges_by_taps(whole)) add(range);
  for (int offset = 1; offset < common; ++offset)
    add({.first_component = 0, .components = components, .taps = 0, .offset = offset});
  return found;
}

bool interleaves_positions(const Conv1dTensors& whole) {
  return is_channels_first(whole) && whole.taps % whole.stride == 0 && whole.stride <= kMostInterleavedComponents &&
         interleaves_positions(whole.stride, whole.dilation);
}

bool converts_results(const Conv1dTensors& whole) {
  return is_channels_first(whole) && whole.channels > 1 && !interleaves_positions(whole);
}

const char* not_interleaved_because(const Conv1dTensors& whole) {
  const long long weights = whole.channels * (whole.taps + whole.stride), results = whole.output_length + whole.padding;
  if (common_divisor(whole) > kMostCommonDivisor) return kNoTap;
  const long long longest = results + (whole.taps + whole.stride) * whole.dilation;
  if (max_of(longest, weights + kSwizzleRows * (whole.taps + whole.stride)) >= kMostResults) return kLong;
  return nullptr;
}

Conv1dParams interleaved_params(const Conv1dParams& whole, const ComponentRange& range) {
  const Positions positions = positions_of(whole, range);
  Conv1dParams params = whole;
  Interleave& own = params.interleave;
  own = {.components = range.components,
         .first_component = range.first_component,
         .stride = static_cast<int>(whole.stride),
         .step = static_cast<int>(whole.dilation),
         .crop = static_cast<int>(whole.padding - range.offset - whole.stride * positions.first),
         .tap_step = static_cast<int>(whole.stride / common_divisor(whole)),
         .channels = static_cast<int>(whole.channels),
         .length = static_cast<int>(whole.output_length),
         .by_positions = interleaves_positions(whole)};
  own.component_bits = std::bit_width(static_cast<unsigned>(own.components)) - 1;
  own.by_row_channels = FastDivisor(own.row_channels());
  if (whole.channels == 1 && !own.by_positions) params.output.strides[1] = 1;  // there is no second channel
  params.dense.weight_taps = range.taps > 0 ? whole.taps : 0;
  const long long word = word_elements(whole.input.dtype);
  if (range.taps == 0) params.dense.input_channels = min_of(params.dense.input_channels, word);
  params.channels = own.rows();
  params.output_length = positions.last - positions.first + 1;
  params.multiplier = 1;
  params.taps = max_of(range.taps, 1);
  params.stride = 1;
  params.dilation = whole.dilation / common_divisor(whole);
  params.padding = max_of(positions.ahead, 0LL);
  // Inputs before the first that reaches a result are left out, which may be all.
  const long long left_out = min_of(max_of(-positions.ahead, 0LL), whole.length);
  params.length = range.taps > 0 ? whole.length - left_out : 0;
  move(params.input, 2, left_out);
  for (int k = 0; k < whole.pre.operands; ++k) move(params.pre_operands[k], 2, left_out);
  return params;
}

const char* transposed_by_aten(const Conv1dTensors& whole, long long groups, bool is_depthwise) {
  if (groups != 1 && !is_depthwise) return kGroups;
  if (whole.stride > 1 && !is_depthwise) return not_interleaved_because(whole);
  if (component_count(whole) > kMostComponents) return kManyComponents;
  for (long long first = 0; first < component_count(whole); ++first) {
    const PolyphaseComponent component = polyphase_component(whole, first);
    if (component.taps == 0 || reach_of(component, whole.length).length < 1) return kNoTaps;
  }
  return nullptr;
}

const char* bound_by_launches(const Conv1dParams& whole) {
  if (size_of(whole.input.dtype) != 2) return nullptr;  // aten adds other types in float64
  const long long results = whole.batch * whole.channels * whole.output_length;
  const long long by_aten = kAtenLaunches + (whole.pre.empty() ? 0 : 1) + results / kResultsOfLaunch;
  if (component_count(whole) > by_aten) return kFewResults;
  return nullptr;
}

}  // namespace sluice
