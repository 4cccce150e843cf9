// What other ops use of transform: one pass of a chain from a tensor into another.
#pragma once

#include "kernels/pipeline/schedule.h"
#include "ops/chain.h"
#include "ops/link.h"

namespace sluice {

// output = chain(input) on the input's device and torch's current stream. Shapes are equal and checked. Returns why the
// chain was not linked; empty where it was.
std::string run_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request, Run run = Run::now);

// The same where it can run linked; false, and nothing is done, elsewhere.
bool run_linked_transform(const char* op, const TensorView& input, const TensorView& output, const Chain& chain,
                          const ScheduleRequest& request);

// A tensor of the input's shape: with the input's strides where it is dense, else contiguous.
Tensor allocate_like(const char* op, const TensorView& input, DType dtype);

}  // namespace sluice
