#pragma once

#include <cuda_runtime_api.h>

#include "kernels/conv1d/conv1d.h"

namespace sluice {

// launch_conv1d for a plan of the Fourier method.
cudaError_t launch_fourier(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                           cudaStream_t stream);

// The kernel ahead: the roots and the filters' spectra into the workspace.
cudaError_t launch_spectra(const Conv1dParams& params, const FourierPlan& plan, void* workspace, cudaStream_t stream);

}  // namespace sluice
