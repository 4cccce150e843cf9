// Plans of an op with several `direct` kernels.
#pragma once

#include "kernels/shared/pipeline/plan.h"

namespace sluice {

// plan_as(request): the plan of that schedule, with 0 threads if it cannot run. fastest(): the schedule that `auto`
// takes; if it cannot run, `direct`.
template <class PlanAs, class Fastest>
auto automatic_plan(ScheduleRequest request, const PlanAs& plan_as, const Fastest& fastest) {
  const auto checked = [&] {
    auto plan = plan_as(request);
    check_grid(plan);
    return plan;
  };
  if (request.automatic) {
    request.schedule = fastest();
    if (const auto plan = checked(); plan.threads > 0) return plan;
    request.schedule = Schedule::direct;
  }
  return checked();
}

}  // namespace sluice
