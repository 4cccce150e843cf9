// A convolution's plan: torch's kernels, or a list of launches. Four functions take a call to its kernels, in this
// order:
//
//   plan_convolution  what runs and the memory that it needs (plan.cpp)
//   link              the chains into the kernels; without success the plan is made anew, for the interpreter (run.cpp)
//   allocate          the result, and a workspace for all launches (convolution.cpp)
//   run               sets the launches' addresses and enqueues them (run.cpp)
//
// The device need not be present for a plan: sluice.plan has it as text.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/operators/transpose/transpose.h"
#include "ops/convolution/convolution.h"
#include "ops/elementwise.h"

namespace sluice {

// Where an operand is: at its address, or in memory that is allocated later. Its data are the offset there until then.
enum class Memory { given, result, workspace };

struct Placed {
  TensorView view;
  Memory memory = Memory::given;
};

struct KernelLaunch {
  Conv1dParams params;
  Memory input, output;
  Conv1dPlan plan = {};
  int64_t workspace = 0;         // offset of the plan's own
  const void* linked = nullptr;  // the kernel with its chains; null: there are none, or they are interpreted
};

struct TransposeLaunch {
  TransposeParams params;
  Memory from, to;
};

struct PassLaunch {
  Pass pass;
  Memory input, output;
};

using Launch = std::variant<KernelLaunch, TransposeLaunch, PassLaunch>;

// torch's convolution, between passes of the chains.
struct Aten {
  const char* reason;
};

// What a plan's text says of its launches.
struct LaunchesText {
  Conv1dPlan first = {};    // plan of the first kernel
  int components = 0;       // polyphase components that the first kernel interleaves
  bool in_passes = false;   // the chains are passes, because the kernel has no interpreted form
  std::string detail = {};  // what the launches are
};

struct Launches {
  std::vector<Launch> list = {};
  int64_t workspace_bytes = 0;
  bool links = false;  // the plan is for kernels with their chains linked in
};

using ConvolutionPlan = std::variant<Aten, Launches>;

struct PlanTarget {
  const DeviceProperties* device;  // null: the CPU
  bool linked;                     // chains are linked into the kernels
};

// `input` is the convolution's; the result has at least one element. Refuses a schedule that cannot run.
ConvolutionPlan plan_convolution(const Convolution& convolution, const TensorView& input, const Placed& result,
                                 const PlanTarget& target);

// The plan as text, for the device of `mode`.
std::string explain_convolution(const Convolution& convolution, const TensorView& input, const Placed& result,
                                const CallMode& mode);

// Links all chains. Returns the form that says why some are not linked, or any; nothing where there are no chains.
std::optional<Form> link(Launches& launches, const DeviceScope& device, long long elements, Action action);
// Whether all kernels that have chains are linked.
bool is_linked(const Launches& launches);

// Enqueues all launches. `result` and `workspace` are the memory that was allocated, if any.
void run(Launches& launches, const DeviceScope& device, void* result, void* workspace);

}  // namespace sluice
