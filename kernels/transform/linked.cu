// transform's kernels with their chain left open, for the linker. One entry a dtype, geometry and schedule; their names
// are what transform/link.cpp asks for.
#define SLUICE_LINKED_MODULE
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
#include "kernels/transform/transform_kernel.cuh"

namespace sluice {

// No floor on the blocks of a multiprocessor: the linker knows the chain and takes the registers that it needs.
#define SLUICE_DIRECT(name, Element, Flat)                               \
  extern "C" __global__ void __launch_bounds__(kTransformThreads)        \
      name(const __grid_constant__ TransformArguments<Element, Flat> a) { \
    direct_transform<LinkedTransformChain<Element>>(a);                  \
  }
#define SLUICE_STAGED(name, Element, Flat, Pipe)                         \
  extern "C" __global__ void __launch_bounds__(kTransformThreads)        \
      name(const __grid_constant__ TransformArguments<Element, Flat> a) { \
    staged_transform<LinkedTransformChain<Element>, Pipe>(a);            \
  }
#define SLUICE_GEOMETRY(prefix, Element, Flat)                            \
  SLUICE_DIRECT(prefix##_direct, Element, Flat)                           \
  SLUICE_STAGED(prefix##_sync, Element, Flat, SyncPipe)                   \
  SLUICE_STAGED(prefix##_multi_stage, Element, Flat, MultiStagePipe)      \
  SLUICE_STAGED(prefix##_thread_scope, Element, Flat, ThreadScopePipe)
#define SLUICE_ELEMENT(dtype, Element)                                    \
  SLUICE_GEOMETRY(sluice_transform_##dtype##_flat, Element, true)         \
  SLUICE_GEOMETRY(sluice_transform_##dtype##_strided, Element, false)

SLUICE_ELEMENT(float32, float)
SLUICE_ELEMENT(float16, __half)
SLUICE_ELEMENT(bfloat16, __nv_bfloat16)
SLUICE_ELEMENT(float64, double)

}  // namespace sluice
