// All pipes, and the type of each schedule's.
#pragma once

#include <type_traits>

#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/barrier_pipe.cuh"
#include "kernels/shared/pipeline/bulk_pipe.cuh"
#include "kernels/shared/pipeline/cooperative_pipe.cuh"
#include "kernels/shared/pipeline/multi_stage_pipe.cuh"
#include "kernels/shared/pipeline/primitives_pipe.cuh"
#include "kernels/shared/pipeline/producer_consumer_pipe.cuh"
#include "kernels/shared/pipeline/single_stage_pipe.cuh"
#include "kernels/shared/pipeline/sync_pipe.cuh"
#include "kernels/shared/pipeline/thread_scope_pipe.cuh"
#include "kernels/shared/pipeline/two_stage_pipe.cuh"

namespace sluice {

// In whole words, because the ring follows it.
template <class Pipe>
inline constexpr int kStorageBytes =
    std::is_empty_v<typename Pipe::Storage> ? 0
                                            : round_up(static_cast<int>(sizeof(typename Pipe::Storage)), kWordBytes);

#define SLUICE_RING(name, Pipe, fixed_depth, producer_threads, least_capability, storage_bytes)                 \
  static_assert(Pipe::kProducers == producer_threads, "rings.def has another number of threads for this pipe"); \
  static_assert(kStorageBytes<Pipe> == storage_bytes, "rings.def has another size for this pipe's storage");    \
  static_assert(storage_bytes <= kStaticSharedMemory, "plans leave kStaticSharedMemory for it");
#include "kernels/shared/pipeline/rings.def"

}  // namespace sluice
