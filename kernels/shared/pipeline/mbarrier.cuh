// The barrier in shared memory on which copies arrive (mbarrier), as used by `barrier`, `bulk` and the dense kernel,
// and the bulk copy, whose bytes it counts.
//
// The waits are our own: CUDA 13.0's sleep between two checks, which costs more than the wait.
#pragma once

#include <cstdint>

namespace sluice {

__device__ __forceinline__ std::uint32_t shared_address(const void* address) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(address));
}

// Whether the phase of this parity has completed.
__device__ __forceinline__ bool has_ended(std::uint64_t* barrier, int parity) {
  std::uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

// Waits until it has.
__device__ __forceinline__ void wait_for_phase(std::uint64_t* barrier, int parity) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
  }
#else
  while (!has_ended(barrier, parity)) {
  }
#endif
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

// Orders this thread's accesses to shared memory before bulk copies into it, which another unit does.
__device__ __forceinline__ void fence_before_bulk_copy() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
}

// Arrives, and keeps the phase incomplete until `bytes` of bulk copies have arrived.
__device__ __forceinline__ void arrive_expecting([[maybe_unused]] std::uint64_t* barrier,
                                                 [[maybe_unused]] std::uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
#endif
}

// Global to shared memory. `to`, `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void copy_bulk([[maybe_unused]] std::uint32_t to, [[maybe_unused]] const char* from,
                                          [[maybe_unused]] std::uint32_t bytes,
                                          [[maybe_unused]] std::uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#endif
}

// The box of a tensor map at these coordinates, from global to shared memory; zeros outside of the tensor.
__device__ __forceinline__ void copy_box([[maybe_unused]] std::uint32_t to, [[maybe_unused]] const void* map,
                                         [[maybe_unused]] int x, [[maybe_unused]] int y, [[maybe_unused]] int z,
                                         [[maybe_unused]] std::uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
#endif
}

}  // namespace sluice
