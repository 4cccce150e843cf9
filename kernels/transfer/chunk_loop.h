// The loop over equal chunks whose results the caller's compute function writes on the device: no Python runs between
// them. The schedule is that of python/sluice/stream/device/pipeline.py, depth first:
//
//   chunk s of this device runs in slot s % depth, with the events of set s % event_sets
//
//   fetch(s)     waits for computed(s - depth)                     the slot's input has been read
//   compute(s)   waits for fetched(s) and stored(s - depth)        its bytes are there, the slot's output has been
//                                                                  copied
//   store(s)     waits for computed(s)
//
// compute(s) is three steps on the compute stream: copies to where the function reads, the function, copies from where
// it writes. A copy removes the halo, or moves a result that stays on the device:
//
//   scratch       |left|******|right|       a function's result, or a slot's input if nothing is computed
//                         |
//   slot's output      |******|             or the chunk's range of the whole result
//
// Two copies of a direction with an event between them leave the host link idle for some microseconds. Small chunks
// therefore form groups, with events at their ends only. The last `depth` chunks of a loop are single, because the
// chunks that follow wait for the events of single chunks.
//
// Chunks that nothing is computed for may skip both:
//   through    each is copied out of the slot that it was copied into: fetch(s) waits for stored(s - depth)
//   straight   each is copied into its range of a result on the device, which nobody reads: fetch(s) waits for nothing
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/engine.h"

namespace sluice::transfer {

// Where the bytes of a chunk begin on the device: in its slot, and `step` bytes further for each chunk.
struct Place {
  std::vector<char*> slots;  // `depth` addresses, which are equal for a place outside the slots
  std::int64_t step = 0;

  char* at(std::int64_t chunk, int slot) const { return slots[static_cast<std::size_t>(slot)] + chunk * step; }
};

// One of the caller's tensors on the host: chunk i begins `i * step` bytes after chunk 0.
struct ChunkEnd {
  ChunkCopy first;  // copy of chunk 0; `packed` is not used
  std::int64_t step = 0;
  Place place;

  ChunkCopy at(std::int64_t chunk, int slot) const;
};

// A copy within the device for each chunk.
struct ChunkMove {
  Place target, source;
  std::int64_t span, rows, target_pitch, source_pitch;  // sizes as in DeviceCopy
};

struct ChunkLoop {
  int depth = 1;
  int event_sets = 2;
  int limit = 2;              // chunks that are issued and not landed; at most event_sets
  std::int64_t sequence = 0;  // number of the loop's first chunk on this device
  std::int64_t first = 0;     // the loop's first chunk, counted from the chunk 0 of its ends and moves
  std::int64_t count = 0;
  int group = 1;  // chunks between two events; if more than one, `depth` is a multiple of it, twice or more
  // The mark of chunk s - depth after which fetch(s) may overwrite its bytes; none if fetch(s) overwrites none.
  std::optional<Mark> freed = Mark::computed;
  std::vector<ChunkEnd> in, out;
  std::vector<ChunkMove> before, after;  // the function

  std::int64_t fetched = 0, stored = 0;  // chunks of the loop whose copies in, and out, are issued

  // Issues the chunks that are left. Returns when all are issued, a copy has failed, or after `milliseconds`, so that
  // the caller can look for an interrupt; it may then be called again. `compute(slot)` may throw.
  void run(Engine& engine, const std::function<void(int slot)>& compute, int milliseconds);

 private:
  // The last chunk of a chunk's group; a single chunk is its own.
  std::int64_t last_of(std::int64_t chunk) const;
  bool may_enter(Engine& engine, std::int64_t chunk, int milliseconds) const;
  void fetch(Engine& engine);
  bool acquire(Engine& engine, int milliseconds) const;
  void move(Engine& engine, const std::vector<ChunkMove>& moves, std::int64_t chunk) const;
  void store(Engine& engine);

  int slot_of(std::int64_t chunk) const { return static_cast<int>((sequence + chunk) % depth); }
  int set_of(std::int64_t chunk) const { return static_cast<int>((sequence + chunk) % event_sets); }
  std::shared_ptr<Command> command_for(const std::vector<ChunkEnd>& ends, std::int64_t begin, std::int64_t last,
                                       std::vector<int> waits) const;
  void wait_for_previous(const Engine& engine, std::int64_t chunk, Mark mark, std::vector<int>& waits) const;
};

}  // namespace sluice::transfer
