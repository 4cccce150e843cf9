// Plans across the op boundary: a device as a list of numbers, a plan as JSON, and refusals.
#pragma once

#include <string>
#include <vector>

#include "kernels/shared/pipeline/plan.h"
#include "ops/common/call_mode.h"

namespace sluice {

// `device` is {compute capability * 10, SMs, threads per SM, bytes of shared memory per SM, bytes of shared memory per
// block}.
CallMode mode_of_plan(const char* op, bool linked, const std::vector<int64_t>& device);

// Where `mode` plans: a result of `sizes` must have at least one element, and fewer than any GPU has memory for.
void check_planned(const char* op, const CallMode& mode, const std::vector<int64_t>& sizes);

// Refuses a schedule that was asked for and cannot run.
void check_plan(const char* op, const Plan& plan, const ScheduleRequest& request);

// The plan of a kernel that writes `elements`, with chains (`chained`) or without. Plans of torch's kernels have only a
// reason. `detail`: the method's description of its plan.
std::string plan_text(const Plan& plan, const CallMode& mode, bool chained, int64_t elements,
                      const std::string& detail = {});

}  // namespace sluice
