// The method for convolutions of half types from many input channels to few output channels, as in the last layers of
// vocoders and codecs: bound by reading the input. few_outputs.cuh draws it.
#pragma once

#include <string>

#include "kernels/shared/common/device_properties.h"

namespace sluice {

enum class FewOutputsKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/few_outputs/kernels.def"
};

inline constexpr const char* kFewOutputsKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/few_outputs/kernels.def"
};
constexpr const char* name_of(FewOutputsKernel kernel) { return kFewOutputsKernelNames[static_cast<int>(kernel)]; }

struct FewOutputsPlan {
  int columns = 0;            // output channels times taps, rounded up to what a warp has sums for
  bool by_positions = false;  // the input's positions are contiguous, else its channels
  bool whole_words = false;   // the input's rows are aligned, and of whole words
  int outputs = 0;            // positions of a tile's result
  int shift = 0;              // positions of a tile's input before its first output's first tap
  long long tiles_of_row = 0;
  long long tiles = 0;  // tiles of the whole grid
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether the kernel can compute a problem of one group, and by its counted bytes is faster than the dense method.
bool suits_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits_few_outputs.
Conv1dPlan plan_few_outputs(const Conv1dProblem& problem, const DeviceProperties& device);

FewOutputsKernel kernel_of(const FewOutputsPlan& plan);

std::string describe(const FewOutputsPlan& plan);

}  // namespace sluice
