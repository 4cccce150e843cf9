// CUDA's errors as text.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/shared/common/device.h"
#include "ops/common/checks.h"

namespace sluice {

inline void check_cuda(const char* op, cudaError_t status, int device) {
  check(status == cudaSuccess, op, ": CUDA device ", device, " failed with ",
        status == cudaSuccess ? std::string() : describe(status, device));
}

}  // namespace sluice
