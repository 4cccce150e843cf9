// The pipe: who waits for whom. Every pipe has the four verbs of cuda::pipeline and one copy:
//
//   Pipe pipe(storage, ring, shares);       set up by the whole block
//   pipe.producer_acquire();                a stage of the ring is free: fetch may write it
//   pipe.copy(tile);                        words, global -> shared, by all producing threads together
//   pipe.copy_zeros(to, from);              a word of zeros; optional, else it is stored
//   pipe.copy_partial<Unit>(to, from, ...); part of a word, zeros around it; optional, else elements are stored
//   pipe.producer_commit();                 everything copied (or stored) since acquire is one batch
//   pipe.consumer_wait();                   the oldest batch is there, for every thread that reads it
//   pipe.consumer_release();                this thread has read it: its stage may be fetched into again
//
//   pipe.produces(), pipe.consumes()        whether this thread fetches, and whether it computes
//   pipe.thread(), pipe.threads()           its rank among the threads that do, and their count
//   pipe.consumer_sync()                    a barrier among the threads that compute
//   Pipe::kProducers                        threads of a block in addition to the computing threads
//   Pipe::kLoop                             the loop that drives it, below
//
// `Pipe::Storage` is in shared memory. `shares`: whether threads read what others have copied; if not, a pipe of one
// thread's own copies needs no barrier. Between acquire and commit a producing thread may also store to the stage
// directly (edges, strided elements): such stores are visible after consumer_wait.
//
// run_ring is the loop around them, and the only owner of stage numbers:
//
//   unified     fetch 0  fetch 1  fetch 2 | wait 0, compute 0, fetch 3 | wait 1, compute 1, fetch 4 | ...    depth 3
//   stages         0        1        2    |                      0     |                      1     |
//
//   two_stage   fetch 0 | fetch 1, wait 0, compute 0 | fetch 2, wait 1, compute 1 | ... | wait n, compute n
//
//   roles       producers   fetch 0  fetch 1  fetch 2  ...  fetch 3 as soon as 0 is released  ...
//               consumers   wait 0, compute 0 | wait 1, compute 1 | ...
#pragma once

#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/pipeline/schedule.h"
#include "kernels/shared/pipeline/word_tile.cuh"

namespace sluice {

// A kernel's ring. Pipes of one schedule only read its depth.
struct Ring {
  Schedule schedule;
  int depth;
};

enum class RingLoop { unified, two_stage, roles };

// Shared by pipes in which every thread of the block fetches and computes.
struct WholeBlock {
  static constexpr int kProducers = 0;
  static constexpr RingLoop kLoop = RingLoop::unified;
  __device__ static bool produces() { return true; }
  __device__ static bool consumes() { return true; }
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static void consumer_sync() { __syncthreads(); }
};

__device__ __forceinline__ int next_stage(int stage, int depth) { return stage + 1 == depth ? 0 : stage + 1; }

// All threads fetch until the ring is full, then compute the oldest stage.
template <class Pipe, class Fetch, class Compute>
__device__ __forceinline__ void run_unified(Pipe& pipe, int depth, long long first, long long end, long long step,
                                            Fetch&& fetch, Compute&& compute) {
  long long ahead = first;
  int in_flight = 0, fetch_stage = 0, compute_stage = 0;
  for (long long tile = first; tile < end; tile += step) {
    for (; ahead < end && in_flight < depth; ahead += step, ++in_flight) {
      if (pipe.produces()) {
        pipe.producer_acquire();
        fetch(ahead, fetch_stage);
        pipe.producer_commit();
      }
      fetch_stage = next_stage(fetch_stage, depth);
    }
    if (pipe.consumes()) {
      pipe.consumer_wait();
      compute(tile, compute_stage);
      pipe.consumer_release();
    }
    compute_stage = next_stage(compute_stage, depth);
    --in_flight;
  }
}

// Two stages, the first fetch before the loop and the last compute after it.
template <class Pipe, class Fetch, class Compute>
__device__ __forceinline__ void run_two_stage(Pipe& pipe, long long first, long long end, long long step, Fetch&& fetch,
                                              Compute&& compute) {
  if (first >= end) return;
  pipe.producer_acquire();
  fetch(first, 0);
  pipe.producer_commit();
  int stage = 0;
  long long tile = first;
  for (; tile + step < end; tile += step) {
    pipe.producer_acquire();
    fetch(tile + step, 1 - stage);
    pipe.producer_commit();
    pipe.consumer_wait();
    compute(tile, stage);
    pipe.consumer_release();
    stage = 1 - stage;
  }
  pipe.consumer_wait();
  compute(tile, stage);
  pipe.consumer_release();
}

// Some threads only fetch, the others only compute.
template <class Pipe, class Fetch, class Compute>
__device__ __forceinline__ void run_roles(Pipe& pipe, int depth, long long first, long long end, long long step,
                                          Fetch&& fetch, Compute&& compute) {
  int stage = 0;
  if (pipe.produces()) {
    for (long long tile = first; tile < end; tile += step, stage = next_stage(stage, depth)) {
      pipe.producer_acquire();
      fetch(tile, stage);
      pipe.producer_commit();
    }
  } else {
    for (long long tile = first; tile < end; tile += step, stage = next_stage(stage, depth)) {
      pipe.consumer_wait();
      compute(tile, stage);
      pipe.consumer_release();
    }
  }
}

// Tiles first, first + step, ... < end. `fetch(tile, stage)` fills a stage of the ring through the pipe, `compute(tile,
// stage)` reads it. Every thread of the block calls this with the same arguments.
template <class Pipe, class Fetch, class Compute>
__device__ __forceinline__ void run_ring(Pipe& pipe, int depth, long long first, long long end, long long step,
                                         Fetch&& fetch, Compute&& compute) {
  if constexpr (Pipe::kLoop == RingLoop::roles) {
    run_roles(pipe, depth, first, end, step, fetch, compute);
  } else if constexpr (Pipe::kLoop == RingLoop::two_stage) {
    run_two_stage(pipe, first, end, step, fetch, compute);
  } else {
    run_unified(pipe, depth, first, end, step, fetch, compute);
  }
}

}  // namespace sluice
