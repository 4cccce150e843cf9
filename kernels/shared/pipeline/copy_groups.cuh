// Asynchronous copies of single words, which a thread counts in copy groups: for kernels whose warps have their own
// rings.
#pragma once

#include "kernels/shared/common/vector.cuh"

namespace sluice {

// 16 bytes from global to shared memory, both aligned.
__device__ __forceinline__ void copy_word(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(__cvta_generic_to_global(from)) : "memory");
}

// Arrives at a barrier (mbarrier.cuh) once the thread's copies so far have, instead of copy groups.
__device__ __forceinline__ void arrive_with_copies(std::uint64_t* barrier) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" : : "r"(address) : "memory");
}

// The thread's copies since the last copy group become the next group, even if there are none.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" : : : "memory"); }

template <int Groups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
}

// Waits until at most `groups` of the thread's copy groups, up to 7, are in flight. The count is part of the
// instruction.
__device__ __forceinline__ void wait_for_copies(int groups) {
  switch (groups) {
    case 0: return wait_for_copies<0>();
    case 1: return wait_for_copies<1>();
    case 2: return wait_for_copies<2>();
    case 3: return wait_for_copies<3>();
    case 4: return wait_for_copies<4>();
    case 5: return wait_for_copies<5>();
    case 6: return wait_for_copies<6>();
    default: return wait_for_copies<7>();
  }
}

}  // namespace sluice
