// conv1d's kernels for vectors of channels with their chains left open, for the linker. One entry a schedule; their
// names are what conv1d/link.cpp asks for. Compiled once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT), for
// `direct` and for the schedules with a ring (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#include "kernels/conv1d/channels_kernel.cuh"
#ifdef SLUICE_MODULE_RING
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
#endif

namespace sluice {

using Element = SLUICE_MODULE_ELEMENT;
using OpenChains = LinkedChains<Element>;

#define SLUICE_JOIN(dtype, suffix) sluice_conv1d_channels_##dtype##_##suffix
#define SLUICE_NAME(dtype, suffix) SLUICE_JOIN(dtype, suffix)
#define SLUICE_ENTRY(suffix, ...)                                                                    \
  extern "C" __global__ void __launch_bounds__(kConv1dThreads)                                       \
      SLUICE_NAME(SLUICE_MODULE_DTYPE, suffix)(const __grid_constant__ Conv1dArguments<Element> a) { \
    __VA_ARGS__(a);                                                                                  \
  }

#ifdef SLUICE_MODULE_RING
SLUICE_ENTRY(sync, staged_channels<OpenChains, SyncPipe>)
SLUICE_ENTRY(multi_stage, staged_channels<OpenChains, MultiStagePipe>)
SLUICE_ENTRY(thread_scope, staged_channels<OpenChains, ThreadScopePipe>)
#else
SLUICE_ENTRY(plain, direct_channels<OpenChains, true>)
SLUICE_ENTRY(direct, direct_channels<OpenChains, false>)
#endif

}  // namespace sluice
