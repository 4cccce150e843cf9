// Requests to the linker. No CUDA header, so the choice of a plan's kernel is tested without a GPU.
#pragma once

#include "kernels/linking/request.h"
#include "kernels/operators/filter2d/filter2d.h"

namespace sluice {

// The kernel that launch_filter2d would run.
LinkRequest link_request(const Filter2dParams& params, const Filter2dPlan& plan);

}  // namespace sluice
