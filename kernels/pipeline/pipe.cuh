// The pipe: who waits for whom. Every back end has the four verbs of cuda::pipeline and one copy:
//
//   Pipe pipe(storage, depth, shares);      set up by the whole block
//   pipe.producer_acquire();                a stage of the ring is free: fetch may write it
//   pipe.copy(to, from);                    16 bytes, global -> shared, both 16-byte aligned
//   pipe.producer_commit();                 everything copied (or stored) since acquire is one batch
//   pipe.consumer_wait();                   the oldest batch is there, for every thread that reads it
//   pipe.consumer_release();                this thread has read it: its stage may be fetched into again
//
// `Pipe::Storage` lives in shared memory. `shares` says whether threads read what others have copied;
// where they do not, a thread-scope pipe needs no barrier at all. Between acquire and commit a thread may
// also store to the stage directly (edges, strided elements): such stores are seen after consumer_wait.
//
// run_ring is the loop around them, and the only owner of stage numbers:
//
//   depth 3    fetch 0  fetch 1  fetch 2 | wait 0, compute 0, fetch 3 | wait 1, compute 1, fetch 4 | ...
//   stages        0        1        2    |                      0     |                      1     |
#pragma once

#include "kernels/common/vector.cuh"
#include "kernels/pipeline/schedule.h"

namespace sluice {

// Tiles first, first + step, ... < end. `fetch(tile, stage)` fills a stage of the ring through the pipe,
// `compute(tile, stage)` reads it. Every thread of the block calls this with the same arguments.
template <class Pipe, class Fetch, class Compute>
__device__ __forceinline__ void run_ring(Pipe& pipe, int depth, long long first, long long end, long long step, Fetch&& fetch,
                                         Compute&& compute) {
  long long ahead = first;
  int in_flight = 0, fetch_stage = 0, compute_stage = 0;
  for (long long tile = first; tile < end; tile += step) {
    for (; ahead < end && in_flight < depth; ahead += step, ++in_flight) {
      pipe.producer_acquire();
      fetch(ahead, fetch_stage);
      pipe.producer_commit();
      fetch_stage = fetch_stage + 1 == depth ? 0 : fetch_stage + 1;
    }
    pipe.consumer_wait();
    compute(tile, compute_stage);
    pipe.consumer_release();
    compute_stage = compute_stage + 1 == depth ? 0 : compute_stage + 1;
    --in_flight;
  }
}

}  // namespace sluice
