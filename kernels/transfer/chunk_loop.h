// The loop over equal chunks whose results the caller's compute function writes into slots: no Python runs between
// them. The schedule is that of python/sluice/stream/device/pipeline.py, depth first:
//
//   chunk s runs in slot s % depth, with the events of set s % event_sets
//
//   fetch(s)     waits for computed(s - depth)                     the slot's input has been read
//   compute(s)   waits for fetched(s) and stored(s - depth)        its bytes are there, the slot's output has been
//   copied store(s)     waits for computed(s)
//
// `through` copies each chunk out of the slot that it was copied into: nothing is computed, and fetch(s) waits for
// stored(s - depth).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/engine.h"

namespace sluice::transfer {

// One of the caller's tensors: chunk i begins `i * step` bytes after chunk 0.
struct ChunkEnd {
  ChunkCopy first;  // of chunk 0; `packed` is not used
  std::int64_t step = 0;
  std::vector<char*> slots;  // `depth` addresses of its place in a slot

  ChunkCopy at(std::int64_t chunk, int slot) const;
};

struct ChunkLoop {
  int depth = 1;
  int event_sets = 2;
  int limit = 2;              // chunks that are issued and not landed; at most event_sets
  std::int64_t sequence = 0;  // of chunk 0 on this device
  std::int64_t count = 0;
  bool through = false;
  std::vector<ChunkEnd> in, out;

  std::int64_t fetched = 0, stored = 0;  // chunks whose copies in, and out, are issued

  // Issues the chunks that are left. Returns when all are issued, a copy has failed, or after `milliseconds`, so that
  // the caller can look for an interrupt; it may then be called again. `compute(slot)` may throw.
  void run(Engine& engine, const std::function<void(int slot)>& compute, int milliseconds);

 private:
  bool may_enter(Engine& engine, std::int64_t chunk, int milliseconds) const;
  void fetch(Engine& engine);
  bool acquire(Engine& engine, int milliseconds) const;
  void store(Engine& engine);

  int slot_of(std::int64_t chunk) const { return static_cast<int>((sequence + chunk) % depth); }
  int set_of(std::int64_t chunk) const { return static_cast<int>((sequence + chunk) % event_sets); }
  void wait_for_previous(const Engine& engine, std::int64_t chunk, Mark mark, std::vector<int>& waits) const;
};

}  // namespace sluice::transfer
