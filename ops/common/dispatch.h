// Each op's file is compiled twice: into _C, where it defines the schema and registers the CPU kernel, and into _C_cuda
// (SLUICE_CUDA_LIBRARY), where it registers the CUDA kernel. Checks and allocation are the same.
#pragma once

#include <torch/csrc/stable/library.h>

#ifdef SLUICE_CUDA_LIBRARY
#define SLUICE_DEVICE_KERNELS(m) STABLE_TORCH_LIBRARY_IMPL(sluice, CUDA, m)
#else
#define SLUICE_DEVICE_KERNELS(m) STABLE_TORCH_LIBRARY_IMPL(sluice, CPU, m)
#endif
