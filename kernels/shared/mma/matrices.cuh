// Matrices of 8 x 8 half-type elements between shared memory and a warp's registers, four at a time. Lane l gives the
// address of row l % 8 (16 bytes) of matrix l / 8; register m of a lane holds elements 2 (lane % 4) and the next of row
// lane / 4 of matrix m.
#pragma once

#include <cstdint>

namespace sluice {

// Transposed while loading: rows in shared memory are columns in registers.
__device__ __forceinline__ void load_transposed(std::uint32_t row, std::uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

// Two matrices, by lanes 0 to 15.
__device__ __forceinline__ void load_transposed(std::uint32_t row, std::uint32_t (&matrices)[2]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(row)
               : "memory");
}

// `Transposed`: columns in registers are rows in shared memory.
template <bool Transposed = false>
__device__ __forceinline__ void store_matrices(std::uint32_t row, const std::uint32_t (&matrices)[4]) {
#if __CUDA_ARCH__ >= 900
  if constexpr (Transposed) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(row), "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(row), "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
  }
#endif
}

}  // namespace sluice
