// One pass of a chain from a tensor into another, for transform and for other ops.
#pragma once

#include "kernels/operators/transform/transform.h"
#include "kernels/shared/pipeline/schedule.h"
#include "ops/common/call_mode.h"
#include "ops/common/chain.h"
#include "ops/common/link.h"

namespace sluice {

// A pass, planned and then linked.
struct Pass {
  TransformParams params;
  TransformPlan plan = {};
  const void* linked = nullptr;  // null: interpreted
};

// output = chain(input), which have at least one element. `device`: null for the CPU.
Pass plan_pass(const char* op, const DeviceProperties* device, const TensorView& input, const TensorView& output,
               const Chain& chain, const ScheduleRequest& request);
// Links the chain on a GPU, or plans the pass for the interpreter.
Form link_pass(const DeviceScope& device, Pass& pass, const ScheduleRequest& request, Action action);
void launch_pass(const DeviceScope& device, const Pass& pass);

// output = chain(input) on the input's device and torch's current stream, or what `mode` says instead. Shapes are equal
// and checked. Returns why the chain was not linked, empty if it was; or the plan as text. `is_new`: the output was
// just allocated.
std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, const CallMode& mode = {}, bool is_new = false);

// The same if it can run linked; otherwise does and returns nothing.
std::optional<std::string> run_linked_transform(const char* op, const TensorView& input, const TensorView& output,
                                                const Chain& chain, const ScheduleRequest& request,
                                                const CallMode& mode);

}  // namespace sluice
