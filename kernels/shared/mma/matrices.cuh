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

// Stores the lower 16 bits of a register.
__device__ __forceinline__ void store_half(std::uint32_t to, std::uint32_t bits) {
  asm volatile("st.shared.u16 [%0], %1;" : : "r"(to), "h"(static_cast<unsigned short>(bits)) : "memory");
}

// `Transposed`: columns in registers are rows in shared memory. Compute capability 9.0 has an instruction for it.
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
#else
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    if constexpr (Transposed) {  // a lane's two elements are in two rows
      const int first = m * 8 + lane % 4 * 2, offset = lane / 4 * 2;
      store_half(__shfl_sync(0xffffffff, row, first) + offset, matrices[m]);
      store_half(__shfl_sync(0xffffffff, row, first + 1) + offset, matrices[m] >> 16);
    } else {
      const std::uint32_t own = __shfl_sync(0xffffffff, row, m * 8 + lane / 4);
      asm volatile("st.shared.u32 [%0], %1;" : : "r"(own + lane % 4 * 4), "r"(matrices[m]) : "memory");
    }
  }
#endif
}

}  // namespace sluice
