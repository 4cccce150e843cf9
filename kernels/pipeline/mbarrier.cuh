// The barrier in shared memory that copies report to (mbarrier), as `barrier` and `bulk` use it.
//
// The waits are our own: CUDA 13.0's sleep between two looks, which costs more than what is waited for.
#pragma once

#include <cstdint>

namespace sluice {

__device__ __forceinline__ std::uint32_t shared_address(const void* address) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}

// Until the phase of this parity has ended.
__device__ __forceinline__ void wait_for_phase(std::uint64_t* barrier, int parity) {
  std::uint32_t done = 0;
  while (done == 0) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
#else
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
#endif
  }
}

__device__ __forceinline__ void initialise(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(std::uint64_t* barrier) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared.b64 state, [%0];}"
               :
               : "r"(shared_address(barrier))
               : "memory");
}

// Orders this thread's loads and stores of shared memory before bulk copies into it, which another unit does.
__device__ __forceinline__ void fence_before_bulk_copy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

}  // namespace sluice
