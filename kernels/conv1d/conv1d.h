// conv1d, depthwise and dense:
//
//   output[b, c, t] = bias[c] + sum_k   weight[c, k]    input[b, c / multiplier, t stride - padding + k dilation]
//   output[b, c, t] = bias[c] + sum_i,k weight[c, i, k] input[b, g n + i, t stride - padding + k dilation]
//
// where c is in group g of n input channels, with a chain on the input before it is padded (pre) and one on the result
// (post). Each method has a folder of its own.
#pragma once

#include <string>

#include "kernels/conv1d/dense/dense.h"
#include "kernels/conv1d/depthwise/depthwise.h"
#include "kernels/conv1d/few_outputs/few_outputs.h"
#include "kernels/conv1d/fourier/fourier.h"
#include "kernels/conv1d/long_filter/long_filter.h"
#include "kernels/pipeline/plan.h"
#include "kernels/stages/program.h"

namespace sluice {

// What a kernel is given, beside its chains. Operands of three dimensions are (batch, channel, position).
struct Conv1dTensors {
  Operand<3> input, output;
  Operand<2> weight;   // (channel, tap); of a dense convolution the first input channel's
  Operand<1> bias;     // may be absent
  Operand<3> history;  // (batch, channel, padding): the values before the first position; absent, they are zeros
  long long batch, channels, length, output_length;  // channels of the output
  int multiplier, taps;
  long long stride, padding, dilation;  // padding: on the left; what lies beyond either end counts as zero
};

struct Conv1dParams : Conv1dTensors {
  DenseTensors dense = {};
  // Where it exists `channels` and `output_length` are the rows and positions of a dense convolution, and the result
  // that `output` and the operands of `post` have is the interleave's; `dense.weight` is a transposed convolution's.
  Interleave interleave = {};
  Program pre = {}, post = {};
  Operand<3> pre_operands[kMaxOperands] = {}, post_operands[kMaxOperands] = {};
};

struct Conv1dProblem {
  long long batch = 1, input_channels = 1, channels = 1, groups = 1;  // channels of the output
  long long output_length = 1;
  int taps = 1;
  long long stride = 1, dilation = 1;
  long long length = 0, padding = 0;  // of the input; asked for by dense kernels alone
  DType dtype = DType::float32;
  // How the tensors lie, as depthwise kernels ask for it.
  bool channels_last = false;  // the output's channels lie side by side, and each has an input channel of its own
  bool aligned = false;        // every row of a channels-first output starts at a 16-byte word
  bool adjacent = false;       // a thread's vectors are side by side in memory, and channels-last ones aligned
  bool alike = false;          // channels first: every row begins in a 16-byte word where its input does
  bool whole_words = false;    // channels_last: a position's channels begin at a word of the input
  bool one_run = false;        // channels_last: the output is one run of memory for each batch, of no doubles
  bool pairs = false;          // channels_last: two channels of a position are aligned together, in and out
  // As the long filters' and the Fourier method's kernels ask: positions lie side by side in input and output, weights
  // are of the input's dtype.
  bool in_rows = false;
  bool in_channels = false;  // or channels do, in a `channels_last` problem whose result is of the input's dtype
  // As dense kernels ask for it.
  DenseFetch fetch = DenseFetch::channels;
  bool by_positions = true;  // the output's positions lie side by side, or neither they nor its channels do
  bool is_packed = false;    // a dense weight comes in the kernel's order
  bool interleaves = false;  // its rows are output channels of several phases
  int most_parts = 1;        // whose sums the pass of a chain can add
  int pre_work = 0;          // instructions that the chain before it takes for an element, about
  // As the kernel for few output channels asks: what lies side by side in the input.
  bool input_by_channels = false, input_by_positions = false;
  bool has_pre = false, has_post = false;  // chains, before the convolution and behind it
  bool has_tensors = false;                // in the latter
};

enum class Conv1dMethod : int { aten, depthwise, dense, long_filter, fourier, few_outputs };

struct MethodChoice {
  Conv1dMethod method;
  const char* reason;  // why torch's own convolution; else empty
};

// By the counts of channels and groups, by whether a schedule is asked for, which only depthwise convolutions have and
// which keeps them to the kernels of that method, by the taps, and by what the device's tensor cores can do.
MethodChoice choose_method(const Conv1dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device);
// Why a convolution that is not depthwise is refused a schedule.
inline constexpr const char* kForcedReason = "only depthwise convolutions have a schedule to choose";
// On any device.
bool is_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request);

// The plan of `which`, in its own part.
struct Conv1dPlan : Plan {
  Conv1dMethod which = Conv1dMethod::aten;
  DepthwisePlan depthwise;
  DensePlan dense;
  LongFilterPlan long_filter;
  FourierPlan fourier;
  FewOutputsPlan few_outputs;
};

// What a plan has of its own beside the numbers that all plans have, in words; or nothing.
std::string describe(const Conv1dPlan& plan);

Conv1dProblem problem_of(const Conv1dParams& params);

// Torch's convolution where no kernel of a chosen method has room and none is asked for; its plan has 0 threads. So has
// one that is refused, whose `reason` names the rule. `linked`: for the form with its chains linked in.
Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                       bool linked);

}  // namespace sluice
