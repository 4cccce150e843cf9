// The method for depthwise filters with hundreds of taps and more: Fourier transforms of overlapping segments of rows.
// How it does is drawn in fourier_kernel.cuh.
#pragma once

#include <string>

#include "kernels/common/device_properties.h"

namespace sluice {

struct FourierPlan {
  int segment = 0;                 // outputs of a row that a transform gives
  int parts = 1, part_taps = 0;    // the filter is cut into parts of so many taps, a spectrum each
  long long segments_per_row = 0;  // a row is the outputs of one channel
  long long segments = 0;          // of a channel, over all of the batch
  long long pairs = 0;             // of them: a block transforms two at once, as real and imaginary part
  bool begins_beside = false;      // the kernel ahead, for whose spectra it waits: there is code for that
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether a depthwise problem is one that the kernel computes, and by its counted work faster than the other methods'.
bool suits_fourier(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits.
Conv1dPlan plan_fourier(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const FourierPlan& plan);

}  // namespace sluice
