// conv1d's kernels with their chains left open, for the linker. One entry a schedule; their names are what
// conv1d/link.cpp asks for. Compiled once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT) and layout
// (SLUICE_MODULE_LAYOUT: rows or channels), for `direct` and for the schedules with a ring (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#ifdef SLUICE_MODULE_RING
#include "kernels/conv1d/staged_channels.cuh"
#include "kernels/conv1d/staged_rows.cuh"
#include "kernels/pipeline/pipes.cuh"
#else
#include "kernels/conv1d/channels_kernel.cuh"
#include "kernels/conv1d/rows_kernel.cuh"
#endif

namespace sluice {

using Element = SLUICE_MODULE_ELEMENT;
using OpenChains = LinkedChains<Element>;

#define SLUICE_PASTE_NAME(layout, dtype, suffix) sluice_conv1d_##layout##_##dtype##_##suffix
#define SLUICE_NAME(layout, dtype, suffix) SLUICE_PASTE_NAME(layout, dtype, suffix)
#define SLUICE_PASTE(prefix, layout) prefix##layout
#define SLUICE_KERNEL(prefix, layout) SLUICE_PASTE(prefix, layout)
#define SLUICE_ENTRY(suffix, threads, form, ...)                                                                           \
  extern "C" __global__ void __launch_bounds__(threads)                                                                    \
      SLUICE_NAME(SLUICE_MODULE_LAYOUT, SLUICE_MODULE_DTYPE, suffix)(const __grid_constant__ Conv1dArguments<Element> a) { \
    SLUICE_KERNEL(form, SLUICE_MODULE_LAYOUT)<OpenChains, __VA_ARGS__>(a);                                                 \
  }

#ifdef SLUICE_MODULE_RING
#define SLUICE_RING(schedule, Pipe) SLUICE_ENTRY(schedule, kConv1dThreads + Pipe::kProducers, staged_, Pipe)
SLUICE_RINGS(SLUICE_RING)
#else
SLUICE_ENTRY(plain, kConv1dThreads, direct_, true)
SLUICE_ENTRY(direct, kConv1dThreads, direct_, false)
#endif

}  // namespace sluice
