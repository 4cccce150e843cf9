// When chunks were where. A step ends with an event that is there anyway. It began with the latest of: its issue by the
// host, the events that it waited for, the end of the step before it on its stream. So nothing is recorded for the
// beginnings: an event more between two copies costs the host and the link more than a small chunk has time for.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/transfer/command.h"
#include "kernels/transfer/driver.h"

namespace sluice::transfer {

// Of one chunk, in nanoseconds since the start of the run: kMarks numbers.
using Times = std::array<std::int64_t, kMarks>;

class Timeline {
 public:
  Timeline(Driver& driver, int window, int start_event);

  // The start event has just been recorded; nothing is in flight.
  void begin();
  // A step of a chunk is being issued, which waits for events.
  void issued(Stream stream, int set, const std::vector<int>& waits);
  // The chunk's three steps are complete. Chunks land in the order in which their steps were issued.
  Times landed(int set);

 private:
  struct Step {
    std::int64_t issued = 0;  // by the host's clock, since begin()
    std::vector<int> waits;
  };

  Step& step(Stream stream, int set) {
    return steps_[static_cast<std::size_t>(set * kStreams + static_cast<int>(stream))];
  }
  std::int64_t host_time() const;

  Driver& driver_;
  const int start_event_;
  std::vector<Step> steps_;
  std::vector<std::int64_t> when_;  // by event, of the last chunk with it that has landed
  std::int64_t last_end_[kStreams] = {};
  std::chrono::steady_clock::time_point start_;
  // The host's clock less the device's: the start event may have had to wait, so the least that was seen.
  std::int64_t ahead_ = 0;
};

}  // namespace sluice::transfer
