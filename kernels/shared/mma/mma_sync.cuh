// A warp's product of matrices of half types in registers (compute capability 8.0 and later).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace sluice {

// Four matrices of 8 x 8 elements of shared memory: lane l gives the address of row l % 8 (16 bytes) of matrix l / 8,
// and gets elements 2 (l % 4) and the next of row l / 4 of each (as in matrices.cuh).
__device__ __forceinline__ void load_matrices(std::uint32_t row, std::uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

// sums += a b, of 16 x 16 by 16 x 8 elements, summed in float32. Lane l has
//
//   a      four matrices of 8 x 8, in load_matrices' layout: rows 0 to 7, rows 8 to 15, and columns 8 to 15 of both
//   b      rows 2 (l % 4) and the next of column l / 4, and the rows 8 below
//   sums   columns 2 (l % 4) and the next of row l / 4, then of the row 8 below
template <class Element>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4], const uint2& b) {
  if constexpr (std::is_same_v<Element, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
  } else if constexpr (std::is_same_v<Element, float>) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
  } else {
    static_assert(std::is_same_v<Element, __nv_bfloat16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
  }
}

}  // namespace sluice
