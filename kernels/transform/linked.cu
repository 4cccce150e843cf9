// transform's kernels with their chain left open, for the linker. One entry a walk and schedule; their names are what
// transform/link.cpp asks for. Compiled once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT), for `direct` and
// for the schedules with a ring (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#ifdef SLUICE_MODULE_RING
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
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
#define SLUICE_ENTRY(walk, schedule, ...)                                                                                      \
  extern "C" __global__ void __launch_bounds__(kMostTransformThreads)                                                          \
      SLUICE_NAME(SLUICE_MODULE_DTYPE, walk##_##schedule)(const __grid_constant__ TransformArguments<Element, Walk::walk> a) { \
    __VA_ARGS__(a);                                                                                                            \
  }

#ifdef SLUICE_MODULE_RING
#define SLUICE_RINGS(walk)                                                                 \
  SLUICE_ENTRY(walk, sync, staged_transform<OpenChain<Walk::walk>, SyncPipe>)              \
  SLUICE_ENTRY(walk, multi_stage, staged_transform<OpenChain<Walk::walk>, MultiStagePipe>) \
  SLUICE_ENTRY(walk, thread_scope, staged_transform<OpenChain<Walk::walk>, ThreadScopePipe>)
SLUICE_RINGS(flat)
SLUICE_RINGS(strided)
#else
SLUICE_ENTRY(flat, direct, direct_transform<OpenChain<Walk::flat>, linked_vectors(Walk::flat)>)
SLUICE_ENTRY(rows, direct, direct_transform<OpenChain<Walk::rows>, linked_vectors(Walk::rows)>)
SLUICE_ENTRY(strided, direct, direct_transform<OpenChain<Walk::strided>, linked_vectors(Walk::strided)>)
#endif

}  // namespace sluice
