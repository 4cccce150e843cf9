// Depthwise convolutions of channels-last tensors with many taps, by the kernels for contiguous positions:
//
//   input    (batch, position, channel)
//     |  transpose
//   rows     (batch, channel, position), each at a whole word
//     |  windows in registers, long filter or Fourier
//   rows     (batch, channel, position)
//     |  transpose
//   result   (batch, position, channel)
//
// The two transpositions take less time than the channels-last kernels lose to many taps.
#pragma once

#include <optional>

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/transpose/transpose.h"

namespace sluice {

// The params of a depthwise convolution from rows into rows, if it is faster this way. Their data is not set: plans
// take it to be aligned.
std::optional<Conv1dParams> faster_by_rows(const Conv1dParams& params, const ScheduleRequest& request,
                                           const DeviceProperties& device);

// The input's transposition into `rows`, and the result's out of it.
TransposeParams input_to_rows(const Conv1dParams& params, const Operand<3>& rows);
TransposeParams output_from_rows(const Conv1dParams& params, const Operand<3>& rows, const Operand<3>& output);

}  // namespace sluice
