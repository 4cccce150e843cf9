// One pass of a chain from a tensor into another: what transform is, and what other ops use of it.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/common/chain.h"
#include "ops/common/question.h"

namespace sluice {

// output = chain(input) on the input's device and torch's current stream, or what the question asks for instead. Shapes
// are equal and checked. Returns why the chain was not linked, empty where it was; or the plan as text. `is_new`: the
// output was just allocated.
std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, const Question& question = {}, bool is_new = false);

// The same where it can run linked; elsewhere nothing is done, and nothing comes back.
std::optional<std::string> run_linked_transform(const char* op, const TensorView& input, const TensorView& output,
                                                const Chain& chain, const ScheduleRequest& request,
                                                const Question& question);

}  // namespace sluice
