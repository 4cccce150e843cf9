// Several convolutions of one input whose results interleave: the polyphase components of a transposed convolution.
// They are one dense convolution with a row for each output channel of each component, and only the store knows where
// a row's results go: position q of component f is result q stride + f step - crop. Components with one tap more than
// others are a convolution of their own; `first_component` is the first of a convolution's components.
//
//   result           rows                                      eight contiguous elements of the result
//   channels-last    component, channel rounded up to 8        8 rows of a position: channels of one component
//   channels-first   channel, component (a power of two, step  8 rows of a position: components of one channel;
//                    of 1)                                     of 2 or 4 components 4 or 2 positions of 2 or 4 rows
//
// A transposed convolution (kernels/operators/conv_transpose1d) of stride 2 with 4 taps and padding 1, channels-first:
//
//   position    0   1   2             rows of channel c    2c    component 0: taps 2 and 0 of inputs q - 1 and q
//   component   0 1 0 1 0 1                                2c+1  component 1: taps 3 and 1
//   result    - 0 1 2 3 4 -           crop 1: the first component of the first position is no result
#pragma once

#include "kernels/operators/conv1d/dense/pack.h"
#include "kernels/operators/conv1d/dense/policy.h"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/qualifiers.h"

namespace sluice {

enum class InterleavedKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/interleaved/kernels.def"
};

inline constexpr const char* kInterleavedKernel =
#define SLUICE_KERNEL(name, ...) #name
#include "kernels/operators/conv1d/interleaved/kernels.def"
    ;

inline constexpr int kSpanBytes = 128;  // 64 results of a half type

// Where a vector of eight begins in an epilogue tile of 16 positions by 32 rows.
struct EpilogueVector {
  int position, row;
};

// A vector of eight contiguous results from this channel and position on; elements first <= i < last exist.
struct ResultVector {
  int channel, position, first, last;
};

struct Interleave {
  int components = 0;            // 0: rows are output channels, and nothing is interleaved
  int first_component = 0;       // `by_positions`: 0, and `components` is the stride
  int stride = 1;                // results from a position to the next
  int step = 1, crop = 0;        // results
  int tap_step = 1;              // weight taps from a component's tap to its next tap
  int channels = 0, length = 0;  // channels and positions of the result
  bool by_positions = false;     // the result's positions are contiguous, not its channels
  int component_bits = 0;        // by_positions: log2 of `components`
  FastDivisor by_row_channels = {};

  bool exists() const { return components > 0; }

  SLUICE_HOST_DEVICE int row_channels() const { return by_positions ? channels : round_up(channels, kSwizzleRows); }
  long long rows() const { return 1LL * components * row_channels(); }
  // `channel` may exceed the result's channels: those rows are zeros.
  SLUICE_HOST_DEVICE long long row(int channel, int component) const {
    return by_positions ? 1LL * channel * components + component : 1LL * component * row_channels() + channel;
  }

  // A row's channel, or -1 where it has none.
  SLUICE_HOST_DEVICE int channel_of(int row) const {
    const int channel = by_positions ? row >> component_bits : row - component_of(row) * row_channels();
    return channel < channels && component_of(row) < components ? channel : -1;
  }
  SLUICE_HOST_DEVICE int component_of(int row) const {
    return by_positions ? row & (components - 1) : static_cast<int>(by_row_channels.quotient_of_31_bits(row));
  }

  // Consecutive vector indices, 64 of an epilogue tile, are consecutive in the result's memory.
  SLUICE_HOST_DEVICE EpilogueVector epilogue_vector(int vector) const {
    if (!by_positions) return {vector / 4, vector % 4 * kEpilogueVector};
    const int channel = vector >> (component_bits + 1), element = (vector & (2 * components - 1)) * kEpilogueVector;
    return {element >> component_bits, (channel << component_bits) + (element & (components - 1))};
  }
  // Whether a vector's elements are rows of several positions.
  SLUICE_HOST_DEVICE bool has_short_spans() const { return by_positions && components < kEpilogueVector; }
  // Position and row of element `i` of a vector.
  SLUICE_HOST_DEVICE EpilogueVector element(const EpilogueVector& vector, int i) const {
    if (!has_short_spans()) return {vector.position, vector.row + i};
    return {vector.position + (i >> component_bits), vector.row + (i & (components - 1))};
  }
  // Elements of the result from a position's first row to a vector's first element, by the result's strides.
  SLUICE_HOST_DEVICE long long offset(const EpilogueVector& vector, const long long (&strides)[3]) const {
    const int component = by_positions ? vector.row & (components - 1) : 0;
    const int channel = by_positions ? vector.row >> component_bits : vector.row;
    return channel * strides[1] + (vector.position * stride + component) * strides[2];
  }
  // by_positions: 64 positions of 32 rows are 32 spans of 64 adjacent results. Elements from the first span's start to
  // a span's; and the byte of a position's row among spans of kSpanBytes, whose 16-byte words are swizzled.
  SLUICE_HOST_DEVICE long long span_offset(int span, long long channel_stride) const {
    return (span >> component_bits) * channel_stride + (span & (components - 1)) * 64;
  }
  SLUICE_HOST_DEVICE std::uint32_t span_byte(int position, int row) const {
    const int element = (position << component_bits) + (row & (components - 1));
    const int span = (row >> component_bits << component_bits) + element / 64;
    return swizzled(static_cast<std::uint32_t>(span * kSpanBytes + element % 64 * 2), kSpanBytes);
  }
  // Consecutive lanes whose vectors are one contiguous span of the result; a power of two.
  SLUICE_HOST_DEVICE int span_lanes() const { return by_positions ? min_of(2 * components, 32) : 1; }

  SLUICE_HOST_DEVICE ResultVector result_vector(int position, int row) const {
    const int component = component_of(row),
              channel = by_positions ? row >> component_bits : row - component * row_channels();
    const int first = position * stride + (first_component + component) * step - crop;
    ResultVector vector{.channel = channel, .position = first, .first = 0, .last = 0};
    if (channel >= channels || component >= components) return vector;
    if (by_positions) {
      vector.first = max_of(0, -first);
      vector.last = min_of(kEpilogueVector, length - first);
    } else if (first >= 0 && first < length) {
      vector.last = min_of(kEpilogueVector, channels - channel);
    }
    return vector;
  }
  // Whether all vectors of these positions and rows exist and are whole; where channels are contiguous, also whether
  // the 32 rows of an epilogue tile are channels of one component.
  SLUICE_HOST_DEVICE bool are_whole(int first_position, int positions, int first_row, int row_count) const {
    const int first = first_position * stride + first_component * step - crop;
    const int last = first + (positions - 1) * stride + (components - 1) * step;
    const bool has_rows = first_row + row_count <= components * row_channels();
    return first >= 0 && last < length && has_rows && (by_positions || channels % kEpilogueColumns == 0);
  }
};

// With `by_positions` the rows of an epilogue tile are all components of whole channels.
inline constexpr int kMostInterleavedComponents = kEpilogueColumns;

// The weight of a transposed convolution, for its rows: tap j of a component, as the kernel counts them, is weight tap
// first_component + component + tap_step (taps - 1 - j), where `taps` are a component's. A component without taps gets
// one tap of zeros.
struct PolyphasePackParams {
  Operand<3> weight;         // (output channel, input channel, tap)
  long long input_channels;  // input channels of the weight
  int weight_taps;           // taps of the weight; 0 where none reaches the rows' results
  void* packed;              // packed rows, as in PackParams
  PackedOrder order;         // order of the rows
  Interleave interleave;

  // A column is a tap of a component: later components + component, for the component's tap `later`.
  int columns_of_channel() const { return order.taps * interleave.components; }
  // Includes the channels of zeros that round rows up to kSwizzleRows.
  int channels() const { return static_cast<int>(order.rows / interleave.components); }

  // The weight's tap of a column; `by_components` divides by `components`.
  SLUICE_HOST_DEVICE int tap(const FastDivisor& by_components, int column) const {
    const int later = static_cast<int>(by_components.quotient_of_31_bits(column));
    return interleave.first_component + column - later * interleave.components + later * interleave.tap_step;
  }
  // A word of a channel's column in the packed weight.
  SLUICE_HOST_DEVICE PackedWord packed_word(const FastDivisor& by_components, int channel, int column, int k_block,
                                            int word) const {
    const int later = static_cast<int>(by_components.quotient_of_31_bits(column));
    return {.k_block = k_block,
            .tap = order.taps - 1 - later,
            .row = interleave.row(channel, column - later * interleave.components),
            .word = word};
  }
};

}  // namespace sluice
