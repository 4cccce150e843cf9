// Problems and requests of the plans' tests.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/transform/transform.h"

namespace sluice {

inline ScheduleRequest forced(Schedule schedule, int depth = 0) { return {false, schedule, depth}; }

inline TransformProblem flat(long long elements, DType dtype) {
  return {.elements = elements, .inner = elements, .dtype = dtype, .misalignment = 0, .walk = Walk::flat};
}

// The strides of contiguous tensors.
inline Conv1dProblem depthwise(long long batch, long long channels, long long length, int taps, DType dtype) {
  return {.batch = batch,
          .input_channels = channels,
          .channels = channels,
          .groups = channels,
          .output_length = length,
          .taps = taps,
          .dtype = dtype,
          .aligned = true,
          .adjacent = true,
          .equally_aligned = true};
}

// Half types, channels contiguous.
inline Conv1dProblem dense(long long batch, long long input_channels, long long channels, long long length, int taps,
                           long long dilation = 1) {
  return {.batch = batch,
          .input_channels = input_channels,
          .channels = channels,
          .groups = 1,
          .output_length = length,
          .taps = taps,
          .dilation = dilation,
          .length = length,
          .padding = (taps - 1) * dilation / 2,
          .dtype = DType::float16};
}

// On rows that are not `aligned`.
inline Filter2dProblem square(long long batch, long long channels, long long height, long long width, int side,
                              DType dtype) {
  return {.batch = batch,
          .channels = channels,
          .output_height = height,
          .output_width = width,
          .kernel_height = side,
          .kernel_width = side,
          .dtype = dtype};
}

}  // namespace sluice
