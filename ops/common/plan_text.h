// Plans across the op boundary: a device as a list of numbers, a plan as JSON; and the plans that are refused.
#pragma once

#include <string>
#include <vector>

#include "kernels/pipeline/plan.h"
#include "ops/common/question.h"

namespace sluice {

// Of a device that is listed as {compute capability * 10, multiprocessors, threads a multiprocessor, bytes of shared
// memory a multiprocessor, bytes of shared memory a block}, for a result of `sizes`: of at least one element, and of
// fewer than any GPU has memory for.
Question plan_question(const char* op, bool linked, const std::vector<int64_t>& device,
                       const std::vector<int64_t>& sizes);

// Refuses a schedule that was asked for and cannot run.
void check_plan(const char* op, const Plan& plan, const ScheduleRequest& request);

// Of a kernel that writes `elements`, with chains (`chained`) or without. Of torch's own kernels nothing is known but
// the reason. `detail`: what the method has to say of its plan.
std::string plan_text(const Plan& plan, const Question& question, bool chained, int64_t elements,
                      const std::string& detail = {});

}  // namespace sluice
