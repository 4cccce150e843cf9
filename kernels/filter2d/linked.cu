// filter2d's kernels with their chains left open, for the linker; their names are what filter2d/link.cpp asks for. Compiled
// once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT), for `direct` and for the schedules with a ring
// (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#ifdef SLUICE_MODULE_RING
#include "kernels/filter2d/staged_kernel.cuh"
#include "kernels/pipeline/pipes.cuh"
#else
#include "kernels/filter2d/aligned_kernel.cuh"
#include "kernels/filter2d/direct_kernel.cuh"
#endif

namespace sluice {

using Element = SLUICE_MODULE_ELEMENT;
using OpenChains = LinkedFilter2dChains<Element>;

#define SLUICE_PASTE_NAME(dtype, suffix) sluice_filter2d_##dtype##_##suffix
#define SLUICE_NAME(dtype, suffix) SLUICE_PASTE_NAME(dtype, suffix)
#define SLUICE_ENTRY(suffix, threads, function, ...)                                                   \
  extern "C" __global__ void __launch_bounds__(threads)                                                \
      SLUICE_NAME(SLUICE_MODULE_DTYPE, suffix)(const __grid_constant__ Filter2dArguments<Element> a) { \
    function<OpenChains, __VA_ARGS__>(a);                                                              \
  }

// Not float64.
#define SLUICE_HAS_ALIGNED_float32 1
#define SLUICE_HAS_ALIGNED_float16 1
#define SLUICE_HAS_ALIGNED_bfloat16 1
#define SLUICE_PASTE_ALIGNED(dtype) SLUICE_HAS_ALIGNED_##dtype
#define SLUICE_HAS_ALIGNED(dtype) SLUICE_PASTE_ALIGNED(dtype)

#ifdef SLUICE_MODULE_RING
#define SLUICE_RING(schedule, Pipe) SLUICE_ENTRY(schedule, kFilter2dThreads + Pipe::kProducers, staged_filter2d, Pipe)
SLUICE_RINGS(SLUICE_RING)
#else
SLUICE_ENTRY(square3, kFilter2dThreads, square_filter2d, 3)
SLUICE_ENTRY(square5, kFilter2dThreads, square_filter2d, 5)
#if SLUICE_HAS_ALIGNED(SLUICE_MODULE_DTYPE)
SLUICE_ENTRY(aligned3, kFilter2dThreads, aligned_filter2d, 3, void)
SLUICE_ENTRY(aligned5, kFilter2dThreads, aligned_filter2d, 5, void)
#endif
SLUICE_ENTRY(dense, kFilter2dThreads, direct_filter2d, false)
SLUICE_ENTRY(separable, kFilter2dThreads, direct_filter2d, true)
#endif

}  // namespace sluice
