// One pass of a chain from a tensor into another, for transform and for other ops.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/common/call_mode.h"
#include "ops/common/chain.h"

namespace sluice {

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
