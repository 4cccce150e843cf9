#pragma once

#include <cuda_runtime_api.h>

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

// launch_conv1d for a plan of the Fourier method.
cudaError_t launch_fourier(const Conv1dParams& params, const Conv1dPlan& plan, const void* linked, void* workspace,
                           cudaStream_t stream);

// Enqueues the spectra kernel, which writes the roots and the filters' spectra to the workspace.
cudaError_t launch_spectra(const Conv1dParams& params, const FourierPlan& plan, void* workspace, cudaStream_t stream);

}  // namespace sluice
