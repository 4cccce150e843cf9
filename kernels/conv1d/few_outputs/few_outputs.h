// The method for convolutions of half types that sum many input channels to a few output channels, as the last layers
// of vocoders and codecs do: bound by reading the input. How it does is drawn in few_outputs_kernel.cuh.
#pragma once

#include <string>

#include "kernels/common/device_properties.h"

namespace sluice {

struct FewOutputsPlan {
  int columns = 0;            // output channels times taps, rounded up to those that a warp has sums for
  bool by_positions = false;  // the input's positions lie side by side, or else its channels
  bool whole_words = false;   // and begin at words, of which there is a whole number
  int outputs = 0;            // positions of a tile's result
  int shift = 0;              // positions of a tile's input ahead of its first output's first tap
  long long tiles_of_row = 0;
  long long tiles = 0;  // that the blocks share out among them
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether a problem of one group is one that the kernel computes, and by its counted bytes faster than the dense
// method's.
bool suits_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits.
Conv1dPlan plan_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device);

std::string describe(const FewOutputsPlan& plan);

}  // namespace sluice
