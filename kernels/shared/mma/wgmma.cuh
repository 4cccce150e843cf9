// A warpgroup's products on tensor cores, with operands in shared memory (wgmma, compute capability 9.0 only).
//
//   D[64, N] += A[64, K] B[N, K]^T      rows of 32 bytes along the reduction, in swizzled tiles: K is 16 elements of a
//                                       half type, or 8 of float32, of which TF32's bits are multiplied
//
// swizzle.h has the tiles' layout. A thread of the four warps holds of D, for each j < N / 8:
//
//   sums[4 j + 0, 1]   row 16 warp + lane / 4,      columns 8 j + 2 (lane % 4) and the next
//   sums[4 j + 2, 3]   the row that is 8 below, the same columns
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/shared/mma/swizzle.h"

namespace sluice {

// Orders a warp's accesses to its sums' registers, and its writes to shared memory, before the following products.
__device__ __forceinline__ void fence_products() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
#endif
}

// Ends a wgmma group.
__device__ __forceinline__ void commit_products() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
#endif
}

// Waits until at most `Groups` wgmma groups are in flight.
template <int Groups>
__device__ __forceinline__ void wait_for_products() {
#if __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(Groups) : "memory");
#endif
}

// The operand list of one instruction: N / 2 sums, eight at a time.
#define SLUICE_SUMS_8(i)                                                                                        \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SLUICE_SUMS_16(i) SLUICE_SUMS_8(i), SLUICE_SUMS_8(i + 8)
#define SLUICE_SUMS_32(i) SLUICE_SUMS_16(i), SLUICE_SUMS_16(i + 16)

// The predicate says whether D's old value is added. `factors`: K and the types of A and B; `layout`: the scales of A
// and B, then for half types that both are K-major. A descriptor's upper half is a constant, so that moving it takes
// 32-bit additions: between two products there is time for few instructions.
#define SLUICE_PRODUCT(n, factors, layout, registers, a, b, p, h, ...)                                              \
  asm volatile("{.reg .pred keep; setp.ne.b32 keep, %" #p                                                           \
               ", 0; "                                                                                              \
               ".reg .b64 rows, columns; mov.b64 rows, {%" #a ", %" #h                                              \
               "}; "                                                                                                \
               "mov.b64 columns, {%" #b ", %" #h                                                                    \
               "}; "                                                                                                \
               "wgmma.mma_async.sync.aligned.m64n" #n factors " {" registers "}, rows, columns, keep, " layout ";}" \
               : __VA_ARGS__                                                                                        \
               : "r"(rows), "r"(columns), "r"(keep), "n"(tile_layout(RowBytes)))

#define SLUICE_R8(a, b, c, d, e, f, g, h) "%" #a ",%" #b ",%" #c ",%" #d ",%" #e ",%" #f ",%" #g ",%" #h
#define SLUICE_R16 SLUICE_R8(0, 1, 2, 3, 4, 5, 6, 7) "," SLUICE_R8(8, 9, 10, 11, 12, 13, 14, 15)
#define SLUICE_R32 \
  SLUICE_R16 "," SLUICE_R8(16, 17, 18, 19, 20, 21, 22, 23) "," SLUICE_R8(24, 25, 26, 27, 28, 29, 30, 31)
#define SLUICE_R48 \
  SLUICE_R32 "," SLUICE_R8(32, 33, 34, 35, 36, 37, 38, 39) "," SLUICE_R8(40, 41, 42, 43, 44, 45, 46, 47)
#define SLUICE_R64 \
  SLUICE_R48 "," SLUICE_R8(48, 49, 50, 51, 52, 53, 54, 55) "," SLUICE_R8(56, 57, 58, 59, 60, 61, 62, 63)

// `rows` and `columns` are where A and B start (swizzle.h).
template <class Element, int N, int RowBytes>
__device__ __forceinline__ void multiply_tiles(float (&sums)[N / 2], std::uint32_t rows, std::uint32_t columns,
                                               int keep) {
  static_assert(N == 32 || N == 64 || N == 96 || N == 128);
#if __CUDA_ARCH_FEAT_SM90_ALL
#define SLUICE_PRODUCTS(factors, layout)                                                                     \
  if constexpr (N == 32) {                                                                                   \
    SLUICE_PRODUCT(32, factors, layout, SLUICE_R16, 16, 17, 18, 19, SLUICE_SUMS_16(0));                      \
  } else if constexpr (N == 64) {                                                                            \
    SLUICE_PRODUCT(64, factors, layout, SLUICE_R32, 32, 33, 34, 35, SLUICE_SUMS_32(0));                      \
  } else if constexpr (N == 96) {                                                                            \
    SLUICE_PRODUCT(96, factors, layout, SLUICE_R48, 48, 49, 50, 51, SLUICE_SUMS_32(0), SLUICE_SUMS_16(32));  \
  } else {                                                                                                   \
    SLUICE_PRODUCT(128, factors, layout, SLUICE_R64, 64, 65, 66, 67, SLUICE_SUMS_32(0), SLUICE_SUMS_32(32)); \
  }
  if constexpr (std::is_same_v<Element, __half>) {
    SLUICE_PRODUCTS("k16.f32.f16.f16", "1, 1, 0, 0")
  } else if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    SLUICE_PRODUCTS("k16.f32.bf16.bf16", "1, 1, 0, 0")
  } else {
    static_assert(std::is_same_v<Element, float>);
    SLUICE_PRODUCTS("k8.f32.tf32.tf32", "1, 1")
  }
#undef SLUICE_PRODUCTS
#endif
}

#undef SLUICE_SUMS_8
#undef SLUICE_SUMS_16
#undef SLUICE_SUMS_32
#undef SLUICE_PRODUCT
#undef SLUICE_R8
#undef SLUICE_R16
#undef SLUICE_R32
#undef SLUICE_R48
#undef SLUICE_R64

}  // namespace sluice
