// The dense method's measured limits, beyond which shapes go to aten.
#include "kernels/operators/conv1d/dense/slower_because.h"

#include "kernels/operators/conv1d/aten_reason.h"
#include "kernels/operators/conv1d/dense/problem.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/policy.h"

namespace sluice {
namespace {

// Half types, random shapes followed by GELU (H200, 1 to 2048 channels, 1 to 65 taps, torch 2.11;
// benchmarks/random_shapes.py dense), torch's time over the kernel's:
//
//                                               the kernel's                        aten's
//   input element by element                    Cin K < 1024: 1.36                  1.04, 27 of 48 slower than torch
//   less than a tile for two SMs,               up to 180 steps of a tap and        of one tap, from 5 steps on, 0.92;
//   not split                                   64 channels: 1.15 to 4.5 (H100)     beyond 180 not measured
//   one tap, rows of whole words                Cin or L no multiple of 8: 1.3      0.46 to 0.86 (7 of 7), 2.4 (1)
//   unaligned rows, Cin K >= 1024               up to half a tile beyond it: 2.1    0.63; converted first 0.79 (H100)
constexpr long long kMostGatheredSum = 1024, kMostStepsOfFewTiles = 256, kMostStepsOfFewProducts = 4;
// One tap, element by element: with few channels in and many out, nearly all traffic is the result.
constexpr long long kMostGatheredProduct = 16;
// The same limits hold with a stride, and for the portable kernel on 8.x and 12.x: predicted. With one tap, inputs that
// would need the conversion to channels-last go to aten; so do sums from kMostGatheredSum on whose residues do not fit
// into one stage and would be gathered.

// Float32 in TF32 without a chain, torch's time over the kernel's (H200, torch 2.11, 77 shapes, 50 of them random; for
// channels-last inputs cuDNN's channels-last convolution is torch's). Times of random shapes below 100 us are partly
// the host's:
//
//                                                    the kernel's                     aten's
//   positions, stride 1                              1.0 to 5.9, 0.8 (1)
//   positions, strided                               1.1 to 3.0, 0.74 and 0.96 (2)    one tap, or 256 channels in and
//                                                                                     out: 0.55 to 0.88
//   channels                                         8 taps with a dilation, 16 taps  0.4 to 1.0
//                                                    to 64 outputs, or channels of
//                                                    no whole words: 1.0 to 7.0
//
// A chain in the kernel saves a pass, so only one tap and many channels with a stride are aten's then.
constexpr long long kManyTf32Channels = 256, kFewTf32Outputs = 64;
constexpr int kDilatedTf32Taps = 8, kTf32Taps = 16;

// Float32 in split products: the estimated cycles of the plan and of cuDNN's FMA kernels, in percent of cuDNN's, beyond
// which the plan is refused (H200, torch 2.11, 196 random shapes; the better of cuDNN's two layouts, for channels-last
// inputs its channels-last convolution):
//
//                             the kernel's                            aten's
//   positions, up to 180 %    62 of 77: 1.0 to 6.0; 0.95 and 0.96     0.16 to 1.0; three of 1.2, 1.6 and 4.7
//   channels, up to 250 %     110 of 119: 1.0 to 10                   0.37 to 1.0; six of 1.4 to 3.4
//
// cuDNN's time is that of a multiple of kAtenChannels output channels, but not in transposed convolutions. With few
// output channels and short sums in (B, C, L) it is shorter: 4 x 32 -> 1, K = 7 takes 0.79 of the kernel's time there,
// and twice as long in channels-last. The kernel's estimates are too low for the shortest rows, which sum few products
// at a time; for strides, whose stages are small; and for one tap.
constexpr long long kAtenCycles = 12000, kAtenChannels = 32;
// Products of an SM in a cycle by cuDNN's FMA kernels. Measured on 9.0, elsewhere in proportion to the FMA units.
struct AtenRate {
  int compute_capability;
  long long products_per_cycle;
};
constexpr AtenRate kAtenRates[] = {
    {.compute_capability = 80, .products_per_cycle = 75},
    {.compute_capability = 86, .products_per_cycle = 150},
};
constexpr long long kFewAtenChannels = 8, kShortAtenSum = 1024;
constexpr long long kPassBytesPerCycle = 25;  // bytes of a chain's own pass
constexpr long long kMostOfPositions = 180, kMostOfChannels = 250;
constexpr long long kShortRowPercent = 200, kStridedPercent = 130, kOneTapPercent = 140;

// Each factor may lose its last bit, which FMA units keep: in shorter sums an element's error would be more than twice
// theirs.
constexpr long long kLeastSplitSum = 16;

constexpr AtenReason kFewTerms("full float32 sums of so few products are more exact on FMA units");
constexpr AtenReason kSplit("cuDNN is faster in full float32 for so few channels, taps or tiles");
constexpr AtenReason kGathered("the input's rows are not aligned to 16 bytes, and aten is faster for sums this long");
constexpr AtenReason kGatheredResidues(
    "the residues of so wide a stride do not fit into shared memory together, and for sums this long aten is faster "
    "than fetching element by element");
constexpr AtenReason kFewTiles("there are few tiles with long sums, and aten splits the sums");
constexpr AtenReason kProduct("one tap makes it a matrix product, and BLAS reads its operands in place");
constexpr AtenReason kFarTaps("the input's rows are not aligned to 16 bytes, and most of a tile's input is halo");
constexpr AtenReason kTf32("cuDNN is faster in TF32 for this layout, these taps and these channels");

bool is_slower_in_tf32(const Conv1dProblem& problem) {
  const bool has_input = problem.length > 0;  // else results of a transposed convolution that no tap reaches
  if (problem.groups > 1 || !has_input) return false;
  const long long inputs = problem.input_channels, outputs = problem.channels;
  const bool is_strided = problem.stride > 1 || problem.interleaves;
  if (problem.stride > 1 && problem.taps == 1) return true;
  if (is_strided && min_of(inputs, outputs) >= kManyTf32Channels) return true;
  if (problem.is_chained || problem.fetch != DenseFetch::channels) return false;
  const bool suits_dilation = problem.dilation > 1 && problem.taps >= kDilatedTf32Taps;
  return !suits_dilation && (problem.taps < kTf32Taps || outputs > kFewTf32Outputs);
}

bool is_slower_split(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device,
                     long long cycles) {
  if (problem.groups > 1) return false;
  const bool are_few = problem.channels < kFewAtenChannels && !problem.input_by_channels &&
                       problem.input_channels * problem.taps < kShortAtenSum;
  const long long multiple = problem.interleaves || are_few ? kFewAtenChannels : kAtenChannels;
  const long long channels = round_up<long long>(problem.channels, multiple);
  const long long positions = problem.batch * problem.output_length;
  const long long products = positions * channels * problem.input_channels * problem.taps;
  const long long pass = problem.is_chained ? 2 * positions * problem.channels * element_bytes(problem) : 0;
  const long long rate = policy_of(device, kAtenRates).products_per_cycle;
  const long long aten = kAtenCycles + (products / rate + pass / kPassBytesPerCycle) / device.multiprocessors;
  long long percent = 100;
  if (plan.dense.row_bytes() == kShortestRow) percent = percent * kShortRowPercent / 100;
  if (problem.stride > 1) percent = percent * kStridedPercent / 100;
  if (problem.taps == 1) percent = percent * kOneTapPercent / 100;
  return cycles * percent > aten * (problem.input_by_channels ? kMostOfChannels : kMostOfPositions);
}

}  // namespace

const char* slower_because(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device,
                           long long cycles) {
  const DensePlan& own = plan.dense;
  const bool is_split = parts_of(problem) == 2;
  if (is_split && inputs_of_group(problem) * problem.taps < kLeastSplitSum) return kFewTerms;
  if (forces_portable()) return nullptr;
  if (is_split && is_slower_split(plan, problem, device, cycles)) return kSplit;
  if (is_split) return nullptr;
  if (problem.dtype == DType::float32 && is_slower_in_tf32(problem)) return kTf32;
  const long long sum = inputs_of_group(problem) * problem.taps;
  const long long steps = 1LL * own.k_blocks * problem.taps;
  const bool is_product = problem.taps == 1, gathers = own.fetch == DenseFetch::elements;
  if (gathers && problem.fetch == DenseFetch::elements && sum >= (is_product ? kMostGatheredProduct : kMostGatheredSum))
    return kGathered;
  if (own.is_general && own.fetch == DenseFetch::elements && sum >= kMostGatheredSum) return kGatheredResidues;
  // Not for interleaved results, which BLAS would leave to be interleaved. These limits were not measured for them.
  const bool suits_blas = problem.stride == 1 && problem.groups == 1 && problem.fetch == DenseFetch::positions &&
                          problem.input_channels % word_of(problem) == 0;
  const bool is_converted_for_a_product =
      own.converts_input && !own.applies_pre_first && problem.fetch != DenseFetch::elements;
  if (is_product && !problem.interleaves && (suits_blas || is_converted_for_a_product)) return kProduct;
  const long long most_steps = is_product ? kMostStepsOfFewProducts : kMostStepsOfFewTiles;
  if (own.splits == 1 && 2 * own.tiles < device.multiprocessors && steps > most_steps) return kFewTiles;
  const long long own_positions = own.positions() * problem.stride;
  if (problem.fetch == DenseFetch::shifted && own.stage_positions > 2 * own_positions && sum >= kMostGatheredSum) {
    return kFarTaps;
  }
  return nullptr;
}

}  // namespace sluice
