#include "kernels/transfer/chunk_loop.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace sluice::transfer {

ChunkCopy ChunkEnd::at(std::int64_t chunk, int slot) const {
  ChunkCopy copy = first;
  copy.bytes.host += chunk * step;
  copy.bytes.packed = place.at(chunk, slot);
  return copy;
}

void ChunkLoop::run(Engine& engine, const std::function<void(int slot)>& compute, int milliseconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  const auto left = [&] {
    const auto rest = deadline - std::chrono::steady_clock::now();
    return static_cast<int>(
        std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(rest).count()));
  };
  while (stored < count && !engine.has_failed()) {
    while (fetched < count && last_of(fetched) - stored < depth) {
      if (!may_enter(engine, last_of(fetched), left())) return;
      fetch(engine);
    }
    if (!acquire(engine, left())) return;
    for (std::int64_t chunk = stored; chunk <= last_of(stored); ++chunk) {
      move(engine, before, chunk);
      compute(slot_of(chunk));
      move(engine, after, chunk);
    }
    engine.commit(set_of(last_of(stored)));
    store(engine);
    if (std::chrono::steady_clock::now() >= deadline) return;
  }
}

std::int64_t ChunkLoop::last_of(std::int64_t chunk) const {
  const std::int64_t begin = chunk - (sequence + chunk) % group;
  return begin >= 0 && begin + group <= count - depth ? begin + group - 1 : chunk;
}

bool ChunkLoop::may_enter(Engine& engine, std::int64_t chunk, int milliseconds) const {
  const std::int64_t landed = sequence + chunk - std::min(limit, event_sets) + 1;
  return engine.landed() >= landed || engine.wait_landed(landed, milliseconds);
}

// Streams keep their order, so the mark of a group's last chunk is that of all.
void ChunkLoop::wait_for_previous(const Engine& engine, std::int64_t chunk, Mark mark, std::vector<int>& waits) const {
  const std::int64_t occupant = chunk - depth;  // the chunk before it in the slot; negative if it is not of this loop
  const std::int64_t previous = sequence + (occupant < 0 ? occupant : last_of(occupant));
  if (previous >= 0 && previous >= engine.landed()) {
    waits.push_back(event_of(static_cast<int>(previous % event_sets), mark));
  }
}

std::shared_ptr<Command> ChunkLoop::command_for(const std::vector<ChunkEnd>& ends, std::int64_t begin,
                                                std::int64_t last, std::vector<int> waits) const {
  auto command = std::make_shared<Command>();
  command->set = set_of(last);
  command->chunks = static_cast<int>(last + 1 - begin);
  command->waits = std::move(waits);
  command->copies.reserve(ends.size() * static_cast<std::size_t>(command->chunks));
  for (std::int64_t chunk = begin; chunk <= last; ++chunk) {
    for (const ChunkEnd& end : ends) command->copies.push_back(end.at(first + chunk, slot_of(chunk)));
  }
  return command;
}

void ChunkLoop::fetch(Engine& engine) {
  const std::int64_t last = last_of(fetched);
  std::vector<int> waits;
  if (freed.has_value()) wait_for_previous(engine, last, *freed, waits);
  engine.fetch(command_for(in, fetched, last, std::move(waits)));
  fetched = last + 1;
}

bool ChunkLoop::acquire(Engine& engine, int milliseconds) const {
  const std::int64_t last = last_of(stored);
  std::vector<int> waits{event_of(set_of(last), Mark::fetched)};
  const bool writes_slot = freed == Mark::computed && !out.empty();
  if (writes_slot) wait_for_previous(engine, last, Mark::stored, waits);
  return engine.acquire(waits, set_of(last), milliseconds);
}

void ChunkLoop::move(Engine& engine, const std::vector<ChunkMove>& moves, std::int64_t chunk) const {
  const int slot = slot_of(chunk);
  for (const ChunkMove& move : moves) {
    engine.move({move.target.at(first + chunk, slot), move.source.at(first + chunk, slot), move.span, move.rows,
                 move.target_pitch, move.source_pitch});
  }
}

void ChunkLoop::store(Engine& engine) {
  const std::int64_t last = last_of(stored);
  engine.store(command_for(out, stored, last, {event_of(set_of(last), Mark::computed)}), Engine::Lander::worker);
  stored = last + 1;
}

}  // namespace sluice::transfer
