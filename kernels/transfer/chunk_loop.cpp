#include "kernels/transfer/chunk_loop.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace sluice::transfer {
namespace {

std::shared_ptr<Command> command_for(const std::vector<ChunkEnd>& ends, std::int64_t chunk, int slot, int set,
                                     std::vector<int> waits) {
  auto command = std::make_shared<Command>();
  command->set = set;
  command->waits = std::move(waits);
  command->copies.reserve(ends.size());
  for (const ChunkEnd& end : ends) command->copies.push_back(end.at(chunk, slot));
  return command;
}

}  // namespace

ChunkCopy ChunkEnd::at(std::int64_t chunk, int slot) const {
  ChunkCopy copy = first;
  copy.bytes.host += chunk * step;
  copy.bytes.packed = slots[static_cast<std::size_t>(slot)];
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
    while (fetched < count && fetched - stored < depth) {
      if (!may_enter(engine, fetched, left())) return;
      fetch(engine);
    }
    if (!acquire(engine, left())) return;
    if (!through) compute(slot_of(stored));
    engine.commit(set_of(stored));
    store(engine);
    if (std::chrono::steady_clock::now() >= deadline) return;
  }
}

bool ChunkLoop::may_enter(Engine& engine, std::int64_t chunk, int milliseconds) const {
  const std::int64_t landed = sequence + chunk - std::min(limit, event_sets) + 1;
  return engine.landed() >= landed || engine.wait_landed(landed, milliseconds);
}

void ChunkLoop::wait_for_previous(const Engine& engine, std::int64_t chunk, Mark mark, std::vector<int>& waits) const {
  const std::int64_t previous = sequence + chunk - depth;
  if (previous >= 0 && previous >= engine.landed()) {
    waits.push_back(event_of(static_cast<int>(previous % event_sets), mark));
  }
}

void ChunkLoop::fetch(Engine& engine) {
  std::vector<int> waits;
  wait_for_previous(engine, fetched, through ? Mark::stored : Mark::computed, waits);
  engine.fetch(command_for(in, fetched, slot_of(fetched), set_of(fetched), std::move(waits)));
  ++fetched;
}

bool ChunkLoop::acquire(Engine& engine, int milliseconds) const {
  std::vector<int> waits{event_of(set_of(stored), Mark::fetched)};
  if (!through) wait_for_previous(engine, stored, Mark::stored, waits);
  return engine.acquire(waits, set_of(stored), milliseconds);
}

void ChunkLoop::store(Engine& engine) {
  const int set = set_of(stored);
  engine.store(command_for(out, stored, slot_of(stored), set, {event_of(set, Mark::computed)}), Engine::Lander::worker);
  ++stored;
}

}  // namespace sluice::transfer
