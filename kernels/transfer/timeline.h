// When each step of a chunk began and ended. A step ends with an event that ordering needs anyway. It begins with the
// latest of: its issue by the host, the events it waits for, the end of the previous step on its stream. Beginnings are
// not recorded: another event between two copies costs the host and the host link too much for small chunks.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/driver.h"

namespace sluice::transfer {

// One chunk's times, in nanoseconds since the start of the run.
using Times = std::array<std::int64_t, kMarks>;

class Timeline {
 public:
  Timeline(Driver& driver, int event_sets, int start_event);

  // The start event has just been recorded; nothing is in flight.
  void begin();
  // A step of a chunk is being issued; it waits for the events.
  void issued(Stream stream, int set, const std::vector<int>& waits);
  // The chunk's three steps are complete. Chunks land in the order in which their steps were issued.
  Times landed(int set);

 private:
  struct Step {
    std::int64_t issued = 0;  // time by the host's clock, since begin()
    std::vector<int> waits;
  };

  Step& step(Stream stream, int set) {
    return steps_[static_cast<std::size_t>(set * kStreams + static_cast<int>(stream))];
  }
  std::int64_t host_time() const;

  Driver& driver_;
  const int start_event_;
  std::vector<Step> steps_;
  std::vector<std::int64_t> when_;  // times by event, in the last landed chunk that used it
  std::int64_t last_end_[kStreams] = {};
  std::chrono::steady_clock::time_point start_;
  // The host's clock minus the device's: the least value seen, because the start event may have waited.
  std::int64_t ahead_ = 0;
};

}  // namespace sluice::transfer
