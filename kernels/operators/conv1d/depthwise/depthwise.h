// The depthwise method: every output channel sums over one input channel, in vectors through registers.
#pragma once

#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/pipeline/schedule.h"

namespace sluice {

enum class DepthwiseKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/depthwise/kernels.def"
};

inline constexpr const char* kDepthwiseKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/depthwise/kernels.def"
};
constexpr const char* name_of(DepthwiseKernel kernel) { return kDepthwiseKernelNames[static_cast<int>(kernel)]; }

constexpr bool takes_channels(DepthwiseKernel kernel) { return kernel >= DepthwiseKernel::direct_channels; }
constexpr bool takes_few_taps(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::few_taps_rows ||
         (kernel >= DepthwiseKernel::few_taps_channels && kernel <= DepthwiseKernel::eight_taps_channels);
}
constexpr bool takes_channel_windows(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::window_channels || kernel == DepthwiseKernel::window_channels_pairs;
}
constexpr bool takes_windows(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::window_rows || takes_channel_windows(kernel);
}

struct DepthwisePlan {
  DepthwiseKernel which = DepthwiseKernel::direct_rows;
  long long tiles = 0;  // tiles, which are divided among the blocks
  // The rows' kernels: vectors and tiles of one row. Without a ring, threads of direct_rows and plain_rows count only
  // vectors.
  long long vectors_per_row = 0, tiles_per_row = 1;
  // The channels' kernels: tiles of a position's channels, and of a batch's positions.
  long long channel_tiles = 1, position_tiles = 1;
  // The few taps' and the windows' kernels, and plain_rows: threads of a block across contiguous vectors; the others
  // are on other rows, or on later positions. direct_rows: threads that share contiguous outputs, each with every
  // `lanes`-th one.
  int lanes = 1;
  int vectors_per_thread = 0;  // iterations of a block over later positions, in the channels' windows
  int stage_words = 0;         // 16-byte words of input in one stage of the ring; window_rows: in a row
  int tap_bytes =
      0;          // shared memory for taps: of a block (direct_rows, direct_channels), a stage, or a row (window_rows)
  int width = 1;  // channels of a thread, in the channels' windows
  bool collects = false;         // the channels' windows: results go through shared memory
  bool equally_aligned = false;  // few_taps_rows: every row of input and output is equally aligned to 16-byte words
};

struct Conv1dProblem;
struct Conv1dPlan;

// `linked`: with the chains linked in; interpreted, tensors in a chain need direct_rows or direct_channels. `threads`
// is 0 and `reason` names the rule if `device` cannot meet the request.
Conv1dPlan plan_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                          bool linked);

// An estimate of the warp instructions issued in all, for many taps (tap_work.h).
double depthwise_issue_slots(const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
