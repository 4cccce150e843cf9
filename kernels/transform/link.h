// What the linker is asked for. No CUDA header, so that which kernel a plan names is tested without a GPU.
#pragma once

#include "kernels/linking/request.h"
#include "kernels/transform/transform.h"

namespace sluice {

// The kernel that launch_transform would run.
LinkRequest link_request(const TransformParams& params, const TransformPlan& plan);

}  // namespace sluice
