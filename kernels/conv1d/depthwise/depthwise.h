// The depthwise method: every output channel sums over one input channel, in vectors through registers.
#pragma once

#include "kernels/common/device_properties.h"
#include "kernels/pipeline/schedule.h"

namespace sluice {

// A row is the positions of one channel; threads of the rows' kernels have vectors of positions, those of the
// channels-last kernels vectors of channels.
enum class DepthwiseKernel : int {
  rows,
  plain_rows,     // a thread's taps fit into registers; stride and dilation 1, no `pre`
  few_taps_rows,  // at most kFewTaps taps, contiguous positions
  window_rows,    // more taps, a window of inputs in registers; stride and dilation 1
  staged_rows,    // the schedules with a ring
  channels,
  few_taps_channels,    // at most kFewTaps taps, and whole quads of channels
  gated_channels,       // the same with `pre`, with tensors in `post`, or with a dilation
  eight_taps_channels,  // the same with at most kEightTaps taps, without `pre`
  window_channels,      // any counts of channels and taps; stride and dilation 1, no `pre`
  staged_channels,
};

inline constexpr const char* kDepthwiseKernelNames[] = {
    "rows",           "plain_rows",        "few_taps_rows",  "window_rows",         "staged_rows",
    "channels",       "few_taps_channels", "gated_channels", "eight_taps_channels", "window_channels",
    "staged_channels"};
constexpr const char* name_of(DepthwiseKernel kernel) { return kDepthwiseKernelNames[static_cast<int>(kernel)]; }

constexpr bool takes_channels(DepthwiseKernel kernel) { return kernel >= DepthwiseKernel::channels; }
constexpr bool takes_few_taps(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::few_taps_rows ||
         (kernel >= DepthwiseKernel::few_taps_channels && kernel <= DepthwiseKernel::eight_taps_channels);
}

struct DepthwisePlan {
  DepthwiseKernel which = DepthwiseKernel::rows;
  long long tiles = 0;  // divided among the blocks
  // The rows' kernels: vectors and tiles of one row. Without a ring, threads of rows and plain_rows count only vectors.
  long long vectors_per_row = 0, tiles_per_row = 1;
  // The channels' kernels: tiles of a position's channels, and of a batch's positions.
  long long channel_tiles = 1, position_tiles = 1;
  // The few taps' and the windows' kernels, and plain_rows: threads of a block across contiguous vectors; the others
  // are on other rows, or on later positions. rows: threads that share contiguous outputs, each with every `lanes`-th
  // one.
  int lanes = 1;
  int vectors_per_thread = 0;    // window_channels: iterations of a block over later positions
  int stage_words = 0;           // 16-byte words of input in one stage of the ring; window_rows: in a row
  int tap_bytes = 0;             // shared memory for taps: of a block (rows, channels), a stage, or a row (window_rows)
  int width = 1;                 // window_channels: channels of a thread
  bool collects = false;         // window_channels: results go through shared memory
  bool equally_aligned = false;  // few_taps_rows: every row of input and output is equally aligned to 16-byte words
};

constexpr bool takes_windows(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::window_rows || kernel == DepthwiseKernel::window_channels;
}

struct Conv1dProblem;
struct Conv1dPlan;

// `linked`: with the chains linked in; interpreted, tensors in a chain need `rows` or `channels`. `threads` is 0 and
// `reason` names the rule if `device` cannot meet the request.
Conv1dPlan plan_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                          bool linked);

// An estimate of the warp instructions issued in all, for many taps (tap_work.h).
double depthwise_issue_slots(const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
