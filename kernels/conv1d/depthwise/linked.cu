// conv1d's kernels with their chains left open, for the linker. One entry a schedule; their names are what
// conv1d/depthwise/link.cpp asks for. Compiled once a dtype (SLUICE_MODULE_DTYPE and its SLUICE_MODULE_ELEMENT) and layout
// (SLUICE_MODULE_LAYOUT: rows or channels), for `direct` and for the schedules with a ring (SLUICE_MODULE_RING).
#define SLUICE_LINKED_MODULE
#ifdef SLUICE_MODULE_RING
#include "kernels/conv1d/depthwise/staged_channels.cuh"
#include "kernels/conv1d/depthwise/staged_rows.cuh"
#include "kernels/pipeline/pipes.cuh"
#else
#include "kernels/conv1d/depthwise/channels_kernel.cuh"
#include "kernels/conv1d/depthwise/few_taps_channels.cuh"
#include "kernels/conv1d/depthwise/few_taps_rows.cuh"
#include "kernels/conv1d/depthwise/rows_kernel.cuh"
#endif

namespace sluice {

using Element = SLUICE_MODULE_ELEMENT;
using OpenChains = LinkedChains<Element>;

#define SLUICE_PASTE_NAME(layout, dtype, suffix) sluice_conv1d_##layout##_##dtype##_##suffix
#define SLUICE_NAME(layout, dtype, suffix) SLUICE_PASTE_NAME(layout, dtype, suffix)
#define SLUICE_PASTE(prefix, layout) prefix##layout
#define SLUICE_KERNEL(prefix, layout) SLUICE_PASTE(prefix, layout)
// `bounds`: of the launch, in parentheses.
#define SLUICE_ENTRY(suffix, bounds, form, ...)                                                                                 \
  extern "C" __global__ void __launch_bounds__ bounds SLUICE_NAME(SLUICE_MODULE_LAYOUT, SLUICE_MODULE_DTYPE,                    \
                                                                  suffix)(const __grid_constant__ Conv1dArguments<Element> a) { \
    SLUICE_KERNEL(form, SLUICE_MODULE_LAYOUT)<OpenChains __VA_OPT__(, ) __VA_ARGS__>(a);                                        \
  }

#ifdef SLUICE_MODULE_RING
#define SLUICE_RING(schedule, Pipe) SLUICE_ENTRY(schedule, (kConv1dThreads + Pipe::kProducers), staged_, Pipe)
SLUICE_RINGS(SLUICE_RING)
#else
SLUICE_ENTRY(direct, (kConv1dThreads), direct_)
#define SLUICE_IS_ROWS_rows 1
#define SLUICE_IS_ROWS_channels 0
#define SLUICE_BOUNDS_rows kFewTapsThreads, kFewTapsRowBlocks<Element>
#define SLUICE_BOUNDS_channels kFewTapsChannelThreads, kFewTapsChannelBlocks<Element>
#define SLUICE_IS_DOUBLE_float32 0
#define SLUICE_IS_DOUBLE_float16 0
#define SLUICE_IS_DOUBLE_bfloat16 0
#define SLUICE_IS_DOUBLE_float64 1
#if SLUICE_KERNEL(SLUICE_IS_ROWS_, SLUICE_MODULE_LAYOUT)
SLUICE_ENTRY(plain, (kConv1dThreads), plain_)
#endif
#if !SLUICE_KERNEL(SLUICE_IS_DOUBLE_, SLUICE_MODULE_DTYPE)
SLUICE_ENTRY(few_taps, (SLUICE_KERNEL(SLUICE_BOUNDS_, SLUICE_MODULE_LAYOUT)), few_taps_)
#endif
#endif

}  // namespace sluice
