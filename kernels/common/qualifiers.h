// Function qualifiers that let one definition serve the host compiler and nvcc.
#pragma once

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define SLUICE_HOST_DEVICE inline
#endif
