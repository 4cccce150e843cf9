// The depthwise method: every output channel sums over one input channel, in vectors through registers.
#pragma once

#include <variant>

#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/pipeline/schedule.h"

namespace sluice {

enum class DepthwiseKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/depthwise/kernels.def"
};

// What is contiguous in the output, and how the work is done: the traits of kernels.def.
enum class DepthwiseLayout { rows, channels };
enum class DepthwiseFamily { direct, plain, few_taps, windows, staged };

struct DepthwiseTraits {
  const char* name;
  DepthwiseLayout layout;
  DepthwiseFamily family;
};

inline constexpr DepthwiseTraits kDepthwiseTraits[] = {
#define SLUICE_TRAITS(layout, family, ...) DepthwiseLayout::layout, DepthwiseFamily::family
#define SLUICE_KERNEL(name, file, module, dtypes, code, pre, post, bounds, traits, ...) {#name, SLUICE_TRAITS traits},
#include "kernels/operators/conv1d/depthwise/kernels.def"
#undef SLUICE_TRAITS
};
constexpr const DepthwiseTraits& traits_of(DepthwiseKernel kernel) {
  return kDepthwiseTraits[static_cast<int>(kernel)];
}
constexpr const char* name_of(DepthwiseKernel kernel) { return traits_of(kernel).name; }
constexpr bool takes_channels(DepthwiseKernel kernel) { return traits_of(kernel).layout == DepthwiseLayout::channels; }
constexpr bool is_of(DepthwiseKernel kernel, DepthwiseFamily family) { return traits_of(kernel).family == family; }

// The direct family's plan: of rows, since channels need none.
struct DirectPlan {
  long long vectors_per_row = 0;  // vectors of a row; of threads that share outputs, all of their vectors
  int lanes = 1;                  // threads of a row that share contiguous outputs, each with every `lanes`-th
};

// The plan of plain and few_taps: words of positions, or quads of channels.
struct WordsPlan {
  int lanes = 1;                 // threads of a block across contiguous vectors; the others are on other rows or later
  int vectors_per_thread = 0;    // words of a row, or positions of a quad
  bool equally_aligned = false;  // every row of input and output is equally aligned to 16-byte words
};

struct WindowsPlan {
  int lanes = 1;          // threads of a block across; the others are on other rows or later
  int iterations = 1;     // channels: iterations of a block over later positions
  int stage_words = 0;    // rows: 16-byte words of a row's inputs
  int tap_bytes = 0;      // bytes of shared memory for a row's taps, or for a block's channels
  int width = 1;          // channels of a thread
  bool collects = false;  // channels: results go through shared memory
};

struct StagedPlan {
  long long tiles = 0;  // tiles, which are divided among the blocks
  int stage_words = 0;  // 16-byte words of input in one stage of the ring
  int tap_bytes = 0;    // bytes of taps in a stage, after its input
};

struct DepthwisePlan {
  DepthwiseKernel which = DepthwiseKernel::direct_rows;
  long long tiles_across = 1;                                        // tiles of a row, or of a position's channels
  long long tiles_along = 1;                                         // channels: tiles of a sample's positions
  std::variant<DirectPlan, WordsPlan, WindowsPlan, StagedPlan> own;  // the plan of the kernel's family

  template <class Family>
  const Family& as() const {
    return *std::get_if<Family>(&own);
  }
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
