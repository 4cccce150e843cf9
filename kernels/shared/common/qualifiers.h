// Function qualifiers that let one definition serve the host compiler and nvcc.
#pragma once

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(SLUICE_INSTRUCTION_SET)  // nothing of it may be shared with other instruction sets
#define SLUICE_HOST_DEVICE inline __attribute__((always_inline))
#else
#define SLUICE_HOST_DEVICE inline
#endif
