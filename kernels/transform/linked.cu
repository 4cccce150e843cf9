// transform's kernels with their chain left open, for the linker. One entry a walk and schedule; their names are what
// transform/link.cpp asks for. Compiled once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT), for `direct` and
// for the schedules with a ring (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#ifdef SLUICE_MODULE_RING
#include "kernels/pipeline/pipes.cuh"
#include "kernels/transform/staged_kernel.cuh"
#else
#include "kernels/transform/direct_kernel.cuh"
#endif

namespace sluice {

using Element = SLUICE_MODULE_ELEMENT;
template <Walk walk>
using OpenChain = LinkedChain<Compute<Element>, TransformArguments<Element, walk>::kRank, Slot::post>;

#define SLUICE_JOIN(dtype, suffix) sluice_transform_##dtype##_##suffix
#define SLUICE_NAME(dtype, suffix) SLUICE_JOIN(dtype, suffix)
// No floor on the blocks of a multiprocessor: the linker knows the chain and takes the registers that it needs.
#define SLUICE_ENTRY(walk, schedule, threads, function, ...)                                                                   \
  extern "C" __global__ void __launch_bounds__(threads)                                                                        \
      SLUICE_NAME(SLUICE_MODULE_DTYPE, walk##_##schedule)(const __grid_constant__ TransformArguments<Element, Walk::walk> a) { \
    function<OpenChain<Walk::walk>, __VA_ARGS__>(a);                                                                           \
  }

#ifdef SLUICE_MODULE_RING
#define SLUICE_FLAT(schedule, Pipe) SLUICE_ENTRY(flat, schedule, kTransformThreads + Pipe::kProducers, staged_transform, Pipe)
#define SLUICE_STRIDED(schedule, Pipe) \
  SLUICE_ENTRY(strided, schedule, kTransformThreads + Pipe::kProducers, staged_transform, Pipe)
SLUICE_RINGS(SLUICE_FLAT)
SLUICE_RINGS(SLUICE_STRIDED)
#else
SLUICE_ENTRY(flat, direct, kTransformThreads, direct_transform, linked_vectors(Walk::flat))
SLUICE_ENTRY(rows, direct, kMostTransformThreads, direct_transform, linked_vectors(Walk::rows))
SLUICE_ENTRY(strided, direct, kTransformThreads, direct_transform, linked_vectors(Walk::strided))
#endif

}  // namespace sluice
