// All pipes, and the type of each schedule's.
#pragma once

#include "kernels/common/device_properties.h"
#include "kernels/pipeline/barrier_pipe.cuh"
#include "kernels/pipeline/bulk_pipe.cuh"
#include "kernels/pipeline/cooperative_pipe.cuh"
#include "kernels/pipeline/multi_stage_pipe.cuh"
#include "kernels/pipeline/primitives_pipe.cuh"
#include "kernels/pipeline/producer_consumer_pipe.cuh"
#include "kernels/pipeline/single_stage_pipe.cuh"
#include "kernels/pipeline/sync_pipe.cuh"
#include "kernels/pipeline/thread_scope_pipe.cuh"
#include "kernels/pipeline/two_stage_pipe.cuh"

// Every schedule with a ring and its pipe: X(name, Pipe).
#define SLUICE_RINGS(X)                      \
  X(sync, SyncPipe)                          \
  X(cooperative, CooperativePipe)            \
  X(barrier, BarrierPipe)                    \
  X(single_stage, SingleStagePipe)           \
  X(two_stage, TwoStagePipe)                 \
  X(multi_stage, MultiStagePipe)             \
  X(producer_consumer, ProducerConsumerPipe) \
  X(thread_scope, ThreadScopePipe)           \
  X(primitives, PrimitivesPipe)              \
  X(bulk, BulkPipe)

namespace sluice {

#define SLUICE_STORAGE_FITS(name, Pipe) \
  static_assert((sizeof(Pipe::Storage) + 15) / 16 * 16 <= kStaticSharedMemory, "plans leave kStaticSharedMemory for it");
SLUICE_RINGS(SLUICE_STORAGE_FITS)
#undef SLUICE_STORAGE_FITS

// Calls `body` with a null pointer of the schedule's pipe; not for `direct`.
template <class Body>
auto with_pipe(Schedule schedule, Body&& body) {
  switch (schedule) {
#define SLUICE_CASE(name, Pipe) \
  case Schedule::name: return body(static_cast<Pipe*>(nullptr));
    SLUICE_RINGS(SLUICE_CASE)
#undef SLUICE_CASE
    case Schedule::direct: break;
  }
  return body(static_cast<SyncPipe*>(nullptr));
}

}  // namespace sluice
