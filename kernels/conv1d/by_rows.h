// Depthwise convolutions of channels-last tensors with many taps, by the kernels that take contiguous positions:
//
//   (B, L, C) in memory  -- transpose -->  (B, C, L)  -- long filter, or Fourier -->  (B, C, L')  -- transpose -->  (B,
//   L', C)
//
// Two passes of copies cost less than what the channels-last kernels lose to a long filter.
#pragma once

#include "kernels/conv1d/conv1d.h"
#include "kernels/transpose/transpose.h"

namespace sluice {

// Whether a depthwise convolution is faster this way.
bool is_faster_by_rows(const Conv1dParams& params, const ScheduleRequest& request, const DeviceProperties& device);

// An address that fresh memory could have, to plan with.
void* fresh_memory();

// The same convolution of an input and a result of contiguous positions, each row `TransposeParams::pitch` elements
// after the last one, at `input` and `output`.
Conv1dParams with_rows(const Conv1dParams& params, void* input, void* output);

// The input's transposition into `rows`, and the result's out of it.
TransposeParams input_to_rows(const Conv1dParams& params, const Operand<3>& rows);
TransposeParams output_from_rows(const Conv1dParams& params, const Operand<3>& rows, const Operand<3>& output);

}  // namespace sluice
