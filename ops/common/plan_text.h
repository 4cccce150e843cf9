// Plans across the op boundary: a device as a list of numbers, a plan as JSON.
#pragma once

#include <string>
#include <vector>

#include "kernels/pipeline/plan.h"

namespace sluice {

// {compute capability * 10, multiprocessors, threads a multiprocessor, bytes of shared memory a
// multiprocessor, bytes of shared memory a block}
DeviceProperties device_from(const char* op, const std::vector<int64_t>& numbers);

// The result that is planned for: at least one element, and fewer than any GPU has memory for.
void check_result(const char* op, const std::vector<int64_t>& sizes);

// Refuses a plan that cannot run.
std::string plan_text(const Plan& plan);

// Of torch's own kernels, of which nothing is known but the reason.
std::string aten_plan_text(const Plan& plan);

}  // namespace sluice
