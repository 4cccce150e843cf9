#include "kernels/transfer/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::transfer {

Timeline::Timeline(Driver& driver, int event_sets, int start_event)
    : driver_(driver),
      start_event_(start_event),
      steps_(static_cast<std::size_t>(event_sets * kStreams)),
      when_(static_cast<std::size_t>(event_sets * kMarks)) {}

std::int64_t Timeline::host_time() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void Timeline::begin() {
  start_ = std::chrono::steady_clock::now();
  ahead_ = std::numeric_limits<std::int64_t>::max();
  std::fill(when_.begin(), when_.end(), 0);
  std::fill(std::begin(last_end_), std::end(last_end_), 0);
}

void Timeline::issued(Stream stream, int set, const std::vector<int>& waits) {
  Step& issued = step(stream, set);
  issued.issued = host_time();
  issued.waits.assign(waits.begin(), waits.end());
}

Times Timeline::landed(int set) {
  constexpr Mark kBegins[kStreams] = {Mark::fetch_begin, Mark::compute_begin, Mark::store_begin};
  constexpr Mark kEnds[kStreams] = {Mark::fetched, Mark::computed, Mark::stored};
  Times times{};
  for (Mark mark : kEnds) {
    times[static_cast<std::size_t>(mark)] = std::llround(1e9 * driver_.seconds(start_event_, event_of(set, mark)));
  }
  ahead_ = std::min(ahead_, host_time() - times[static_cast<std::size_t>(Mark::stored)]);
  for (int stream = 0; stream < kStreams; ++stream) {
    const Step& issued = step(static_cast<Stream>(stream), set);
    const std::int64_t end = times[static_cast<std::size_t>(kEnds[stream])];
    std::int64_t begin = std::max(last_end_[stream], issued.issued - ahead_);
    for (int event : issued.waits) begin = std::max(begin, when_[static_cast<std::size_t>(event)]);
    times[static_cast<std::size_t>(kBegins[stream])] = std::min(begin, end);
    last_end_[stream] = when_[static_cast<std::size_t>(event_of(set, kEnds[stream]))] = end;
  }
  return times;
}

}  // namespace sluice::transfer
