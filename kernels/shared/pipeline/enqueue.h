// What launchers call: a kernel of a method's table, instantiated in its own source (linking/kernel_table.h).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/shared/common/dtype.h"

namespace sluice {

// Enqueues the kernel `which` for a dtype, and for a tile where it has tiles: `linked`, or its interpreted form where
// that is null. launch.cuh defines it.
template <auto which, class Element, int... tile, class Params, class Plan>
cudaError_t enqueue(const Params& params, const Plan& plan, const void* linked, cudaStream_t stream);

// The column `dtypes` of kernels.def.
enum class KernelDtypes { all, up_to_float32, half, float32 };

constexpr bool are_for(KernelDtypes dtypes, DType dtype) {
  switch (dtypes) {
    case KernelDtypes::all: return true;
    case KernelDtypes::up_to_float32: return dtype != DType::float64;
    case KernelDtypes::half: return size_of(dtype) == 2;
    case KernelDtypes::float32: break;
  }
  return dtype == DType::float32;
}

// A case of a launcher's switch over the kernels of a table, where `Element` is a call's dtype.
#define SLUICE_ENQUEUE(Kernel, name, dtypes)                                                \
  case Kernel::name:                                                                        \
    if constexpr (sluice::are_for(sluice::KernelDtypes::dtypes, sluice::kDType<Element>)) { \
      return sluice::enqueue<Kernel::name, Element>(params, plan, linked, stream);          \
    }                                                                                       \
    break;

}  // namespace sluice
