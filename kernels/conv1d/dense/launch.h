#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/dense/lay.h"
#include "kernels/conv1d/dense/turn.h"

namespace sluice {

// Enqueues the packing of a weight of at least one element.
cudaError_t launch_pack(const PackParams& params, cudaStream_t stream);
cudaError_t launch_pack_phases(const PhasePackParams& params, cudaStream_t stream);
// The same of an input, into memory of at least one piece, with a chain on the way: `linked`, the linker's answer to
// lay_link_request, or where that is null the interpreted form.
cudaError_t launch_lay(const LayParams& params, const Program& pre, const Operand<3>* operands, const void* linked,
                       cudaStream_t stream);
// Of at least one element.
cudaError_t launch_turn(const TurnParams& params, cudaStream_t stream);

// launch_conv1d for a plan of the dense method.
cudaError_t launch_dense(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                         cudaStream_t stream);

}  // namespace sluice
