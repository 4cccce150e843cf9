// The method for depthwise filters of hundreds of taps and more: Fourier transforms of overlapping segments of rows.
// fourier.cuh draws it.
#pragma once

#include <string>

#include "kernels/shared/common/device_properties.h"

namespace sluice {

enum class FourierKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/fourier/kernels.def"
};

inline constexpr const char* kFourierKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/fourier/kernels.def"
};
constexpr const char* name_of(FourierKernel kernel) { return kFourierKernelNames[static_cast<int>(kernel)]; }

struct FourierPlan {
  int segment = 0;                         // outputs of a row that a transform gives
  int partitions = 1, partition_taps = 0;  // the filter's partitions have a spectrum each
  long long segments_per_row = 0;          // a row is the outputs of one channel
  long long segments = 0;                  // segments of a channel, over all of the batch
  long long pairs = 0;                     // pairs of segments: a block transforms two at once, real and imaginary part
  bool begins_beside = false;              // starts while the spectra kernel runs, and waits for it
};

struct Conv1dProblem;
struct Conv1dPlan;

// Whether the kernel can compute a depthwise problem, and by its counted work is faster than the other methods.
bool suits_fourier(const Conv1dProblem& problem, const DeviceProperties& device);

// For a problem that suits_fourier.
Conv1dPlan plan_fourier(const Conv1dProblem& problem, const DeviceProperties& device);

inline FourierKernel kernel_of(const FourierPlan& plan) {
  return plan.partitions > 1 ? FourierKernel::fourier_partitioned : FourierKernel::fourier;
}

std::string describe(const FourierPlan& plan);

}  // namespace sluice
