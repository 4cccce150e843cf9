// Requests to the linker. No CUDA header, so the choice of a plan's kernel is tested without a GPU.
#pragma once

#include "kernels/linking/request.h"
#include "kernels/operators/transform/transform.h"

namespace sluice {

// The kernel that launch_transform would run.
LinkRequest link_request(const TransformParams& params, const TransformPlan& plan);

}  // namespace sluice
