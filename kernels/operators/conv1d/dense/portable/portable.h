// The dense method on the tensor cores of compute capability 8.0 and later: mma.sync in a ring of asynchronous copies.
// portable.cuh draws it.
#pragma once

#include "kernels/operators/conv1d/dense/dense.h"

namespace sluice {

enum class PortableKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/conv1d/dense/portable/kernels.def"
};

inline constexpr const char* kPortableKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/conv1d/dense/portable/kernels.def"
};
constexpr const char* name_of(PortableKernel kernel) { return kPortableKernelNames[static_cast<int>(kernel)]; }

inline PortableKernel portable_kernel_of(const DensePlan& plan, bool interleaves) {
  if (interleaves) return PortableKernel::portable_interleaved;
  return plan.by_positions ? PortableKernel::portable_positions : PortableKernel::portable_channels;
}

// Whether the portable kernel is compiled for the tile.
constexpr bool is_portable(const DenseShape& tile) {
#define SLUICE_DENSE_TILE(blocks_, channels_) \
  if (tile.blocks == (blocks_) && tile.channels == (channels_)) return true;
#include "kernels/operators/conv1d/dense/portable/tiles.def"
#undef SLUICE_DENSE_TILE
  return false;
}

// Sets the stages, the shared memory and the blocks of a portable plan, whose tile and rows are set; `threads` stays 0
// where they do not fit.
void set_portable_stages(Conv1dPlan& plan, const DeviceProperties& device);

// Cycles of the last block to end.
long long portable_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device);

}  // namespace sluice
