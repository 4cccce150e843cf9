// conv1d, depthwise and dense:
//
//   output[b, c, t] = bias[c] + sum_k   weight[c, k]    input[b, c / multiplier, t stride - padding + k dilation]
//   output[b, c, t] = bias[c] + sum_i,k weight[c, i, k] input[b, g n + i, t stride - padding + k dilation]
//
// where c is in group g of n input channels, with a chain on the input before it is padded (pre) and one on the result
// (post). Each method has its own folder.
#pragma once

#include <string>

#include "kernels/operators/conv1d/dense/dense.h"
#include "kernels/operators/conv1d/depthwise/depthwise.h"
#include "kernels/operators/conv1d/few_outputs/few_outputs.h"
#include "kernels/operators/conv1d/fourier/fourier.h"
#include "kernels/operators/conv1d/long_filter/long_filter.h"
#include "kernels/shared/pipeline/plan.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// A kernel's tensors and sizes, without its chains. Operands of three dimensions are (batch, channel, position).
struct Conv1dTensors {
  Operand<3> input, output;
  Operand<2> weight;   // (channel, tap); for dense convolutions of the first input channel
  Operand<1> bias;     // may be absent
  Operand<3> history;  // (batch, channel, padding): values before the first position; zeros if absent
  long long batch, channels, length, output_length;  // channels of the output
  int multiplier, taps;
  long long stride, padding, dilation;  // padding: on the left; inputs beyond either end are zeros
};

struct Conv1dParams : Conv1dTensors {
  DenseTensors dense = {};
  // Where it exists, `channels` and `output_length` are the rows and positions of a dense convolution, `output` and the
  // operands of `post` are the interleaved result's, and `dense.weight` is a transposed convolution's.
  Interleave interleave = {};
  Program pre = {}, post = {};
  Operand<3> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct Conv1dProblem {
  long long batch = 1, input_channels = 1, channels = 1, groups = 1;  // channels of the output
  long long output_length = 1;
  int taps = 1;
  long long stride = 1, dilation = 1;
  long long length = 0, padding = 0;  // positions of the input, and before it; only dense kernels use them
  DType dtype = DType::float32;
  // The tensors' layout, for depthwise kernels.
  bool channels_last = false;    // the output's channels are contiguous, and each has its own input channel
  bool aligned = false;          // every row of a channels-first output starts at a 16-byte word
  bool adjacent = false;         // a thread's vectors are contiguous, and channels-last vectors aligned
  bool equally_aligned = false;  // channels-first: every row is aligned as its input row is
  bool whole_words = false;      // channels_last: a position's channels begin at an aligned word of the input
  bool one_span = false;         // channels_last: each sample of the output is contiguous, and not of doubles
  bool pairs = false;            // channels_last: two channels of a position are one aligned access, in and out
  // For the long filters and the Fourier method: positions are contiguous in input and output, and weights are of the
  // input's dtype.
  bool in_rows = false;
  bool in_channels = false;  // or channels are, in a `channels_last` problem whose result is of the input's dtype
  // For dense kernels.
  DenseFetch fetch = DenseFetch::channels;
  bool by_positions = true;  // the output's positions are contiguous, or neither they nor its channels are
  bool is_packed = false;    // the weight is packed already
  bool allows_tf32 = false;  // float32 may be rounded to TF32
  bool interleaves = false;  // its rows are output channels of several polyphase components
  bool may_split = false;    // some tiles' sums may be split
  int pre_work = 0;          // estimated instructions of `pre` for an element
  // For few output channels: what is contiguous in the input.
  bool input_by_channels = false, input_by_positions = false;
  bool has_pre = false, has_post = false;
  bool is_chained = false;   // chains run in it, or in passes around it until they are linked
  bool has_tensors = false;  // `post` has operands

  bool operator==(const Conv1dProblem&) const = default;
};

enum class Conv1dMethod : int { aten, depthwise, dense, long_filter, fourier, few_outputs };

struct MethodChoice {
  Conv1dMethod method;
  const char* reason;  // the reason for Conv1dMethod::aten; else empty
};

// Chooses by channels, groups and taps, by the device's tensor cores, and by whether a schedule is requested: only the
// kernels of the depthwise method have one.
MethodChoice choose_method(const Conv1dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device);
// Why a convolution that is not depthwise is refused a schedule.
inline constexpr const char* kForcedReason = "only depthwise convolutions have a choice of schedule";
// Whether the depthwise method can compute it, on any device.
bool is_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request);

// Only the member of `which` is set.
struct Conv1dPlan : Plan {
  Conv1dMethod which = Conv1dMethod::aten;
  DepthwisePlan depthwise;
  DensePlan dense;
  LongFilterPlan long_filter;
  FourierPlan fourier;
  FewOutputsPlan few_outputs;
};

// The method's own numbers of a plan as text, or nothing.
std::string describe(const Conv1dPlan& plan);

Conv1dProblem problem_of(const Conv1dParams& params);

// Falls back to torch's convolution, a plan of 0 threads, where no kernel of the method fits and none is requested. A
// refused plan has 0 threads too, and its `reason` names the rule. `linked`: for the form with its chains linked in.
// The thread's recent plans are kept.
Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                       bool linked);

}  // namespace sluice
