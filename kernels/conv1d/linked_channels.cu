// conv1d's kernels for vectors of channels with their chains left open, for the linker. One entry a dtype and
// schedule; their names are what conv1d/link.cpp asks for.
#define SLUICE_LINKED_MODULE
#include "kernels/conv1d/channels_kernel.cuh"
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"

namespace sluice {

#define SLUICE_DIRECT(name, Element, Plain)                                                                       \
  extern "C" __global__ void __launch_bounds__(kConv1dThreads) name(const __grid_constant__ Conv1dArguments<Element> a) { \
    direct_channels<LinkedChains<Element>, Plain>(a);                                                               \
  }
#define SLUICE_STAGED(name, Element, Pipe)                                                                        \
  extern "C" __global__ void __launch_bounds__(kConv1dThreads) name(const __grid_constant__ Conv1dArguments<Element> a) { \
    staged_channels<LinkedChains<Element>, Pipe>(a);                                                                \
  }
#define SLUICE_ELEMENT(prefix, Element)                       \
  SLUICE_DIRECT(prefix##_plain, Element, true)                \
  SLUICE_DIRECT(prefix##_direct, Element, false)              \
  SLUICE_STAGED(prefix##_sync, Element, SyncPipe)             \
  SLUICE_STAGED(prefix##_multi_stage, Element, MultiStagePipe) \
  SLUICE_STAGED(prefix##_thread_scope, Element, ThreadScopePipe)

SLUICE_ELEMENT(sluice_conv1d_channels_float32, float)
SLUICE_ELEMENT(sluice_conv1d_channels_float16, __half)
SLUICE_ELEMENT(sluice_conv1d_channels_bfloat16, __nv_bfloat16)
SLUICE_ELEMENT(sluice_conv1d_channels_float64, double)

}  // namespace sluice
