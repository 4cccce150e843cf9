// The depthwise method: every output channel sums over one input channel of its own, in vectors through registers.
#pragma once

#include "kernels/common/device_properties.h"
#include "kernels/pipeline/schedule.h"

namespace sluice {

// A row is the positions of one channel; a thread of the rows' kernels takes vectors of them. Where channels lie side
// by side in memory it takes vectors of channels.
enum class DepthwiseKernel : int {
  rows,
  plain_rows,     // a thread's taps fit into registers; stride and dilation 1, no `pre`
  few_taps_rows,  // at most kFewTaps of them, and positions are side by side in memory as well
  window_rows,    // more taps, a window of inputs in registers; stride and dilation 1
  staged_rows,    // for the schedules with a ring
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
  long long tiles = 0;  // that the blocks share out among them
  // The rows' kernels: what one row is cut into. Without a ring the threads of rows and plain_rows count vectors alone.
  long long vectors_per_row = 0, tiles_per_row = 1;
  // The channels' kernels: what the channels of a position and the positions of a batch are cut into.
  long long channel_tiles = 1, position_tiles = 1;
  // The few taps' and the windows' kernels, and plain_rows: threads of a block whose vectors are side by side in
  // memory; the others are on other rows, or on later positions. rows: threads that share a run of outputs, each of
  // which takes one of so many.
  int lanes = 1;
  int vectors_per_thread = 0;  // window_channels: times that a block takes later positions
  int stage_words = 0;         // 16-byte words of input in one stage of the ring; window_rows: of a row's
  int tap_bytes = 0;      // of shared memory for taps: a block's (rows, channels), a stage's, or a row's (window_rows)
  int width = 1;          // window_channels: channels of a thread
  bool collects = false;  // window_channels: results go through shared memory
  bool alike = false;     // few_taps_rows: every row of the output lies against 16-byte words as its input does
};

constexpr bool takes_windows(DepthwiseKernel kernel) {
  return kernel == DepthwiseKernel::window_rows || kernel == DepthwiseKernel::window_channels;
}

struct Conv1dProblem;
struct Conv1dPlan;

// `linked`: the chains will be part of the kernel; interpreted, tensors in a chain need `rows` or `channels`. `threads`
// is 0 and `reason` names the rule where the request cannot be met on `device`.
Conv1dPlan plan_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                          bool linked);

// Instructions that warps issue for all of it, about, where taps are many (tap_work.h).
double depthwise_slots(const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
