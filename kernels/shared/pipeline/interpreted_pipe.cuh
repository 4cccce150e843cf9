// The pipe of interpreted kernels: its schedule is a value, as their chain is. One kernel serves every schedule, with
// one switch per verb that is uniform over the grid, so that fetch and compute are compiled once, not once per
// schedule. The schedule's own pipe does the work. For speed, kernels run linked, with that pipe alone.
//
// The unified loop here drives every pipe. At a depth of two its order is two_stage's; in a block with roles, producers
// only fetch and consumers only compute.
#pragma once

#include <new>

#include "kernels/shared/pipeline/copy.cuh"
#include "kernels/shared/pipeline/pipes.cuh"

namespace sluice {

class InterpretedPipe {
 public:
  static constexpr int kProducers = [] {
    int most = 0;
    for (const ScheduleTraits& traits : kScheduleTraits) most = max_of(most, traits.producer_threads);
    return most;
  }();
  static constexpr RingLoop kLoop = RingLoop::unified;

  union Storage {
#define SLUICE_RING(name, Pipe, ...) Pipe::Storage name;
#include "kernels/shared/pipeline/rings.def"
  };

  __device__ InterpretedPipe(Storage& storage, Ring ring, bool shares) : schedule_(ring.schedule) {
    switch (schedule_) {
#define SLUICE_RING(name, Pipe, ...) \
  case Schedule::name: new (&pipes_.name) Pipe(storage.name, ring, shares); break;
#include "kernels/shared/pipeline/rings.def"
      case Schedule::direct: break;
    }
    with_own([this](auto& pipe) {
      produces_ = pipe.produces();
      consumes_ = pipe.consumes();
      thread_ = pipe.thread();
      threads_ = pipe.threads();
    });
  }
  __device__ ~InterpretedPipe() {
    with_own([]<class Pipe>(Pipe& pipe) { pipe.~Pipe(); });
  }
  InterpretedPipe(const InterpretedPipe&) = delete;
  InterpretedPipe& operator=(const InterpretedPipe&) = delete;

  __device__ bool produces() const { return produces_; }
  __device__ bool consumes() const { return consumes_; }
  __device__ int thread() const { return thread_; }
  __device__ int threads() const { return threads_; }

  __device__ void producer_acquire() {
    with_own([](auto& pipe) { pipe.producer_acquire(); });
  }
  __device__ void copy(const WordTile& tile) {
    with_own([&](auto& pipe) { pipe.copy(tile); });
  }
  __device__ void copy_zeros(Word* to, const char* from) {
    with_own([&](auto& pipe) { sluice::copy_zeros(pipe, to, from); });
  }
  template <int Unit>
  __device__ bool copy_partial(Word* to, const char* from, int first, int last) {
    bool copied = false;
    with_own([&](auto& pipe) { copied = sluice::copy_partial<Unit>(pipe, to, from, first, last); });
    return copied;
  }
  __device__ void producer_commit() {
    with_own([](auto& pipe) { pipe.producer_commit(); });
  }
  __device__ void consumer_wait() {
    with_own([](auto& pipe) { pipe.consumer_wait(); });
  }
  __device__ void consumer_sync() {
    with_own([](auto& pipe) { pipe.consumer_sync(); });
  }
  __device__ void consumer_release() {
    with_own([](auto& pipe) { pipe.consumer_release(); });
  }

 private:
  template <class Body>
  __device__ __forceinline__ void with_own(const Body& body) {
    switch (schedule_) {
#define SLUICE_RING(name, Pipe, ...) \
  case Schedule::name: return body(pipes_.name);
#include "kernels/shared/pipeline/rings.def"
      case Schedule::direct: break;
    }
  }

  union Pipes {
#define SLUICE_RING(name, Pipe, ...) Pipe name;
#include "kernels/shared/pipeline/rings.def"
    __device__ Pipes() {}
    __device__ ~Pipes() {}
  };

  Schedule schedule_;
  bool produces_ = false, consumes_ = false;
  int thread_ = 0, threads_ = 0;
  Pipes pipes_;
};

}  // namespace sluice
