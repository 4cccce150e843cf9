// A command from the scheduler to the engine: one chunk's copies in one direction, and the events they wait for.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transfer/mapping.h"
#include "kernels/transfer/strided_copy.h"

namespace sluice::transfer {

// Times of one chunk in flight; its three steps end with events. A set has six event numbers, three of them used;
// chunk i uses set i % event_sets.
enum class Mark : int { fetch_begin, fetched, compute_begin, computed, store_begin, stored };
inline constexpr int kMarks = 6;

constexpr int event_of(int set, Mark mark) { return set * kMarks + static_cast<int>(mark); }

enum class Route : int {
  direct = 0,    // pinned and in rows: the device's copy engine reads or writes it
  ring = 1,      // copied by threads through the pinned ring
  shared = 2,    // the device's memory is the host's: threads copy into or out of the slot
  pageable = 3,  // as direct, but not pinned: the driver stages it, and the host waits. Pages of a file go through a
                 // buffer, because the driver's copy could not be left where the file ends
};
inline constexpr int kRoutes = 4;

struct ChunkCopy {
  StridedCopy bytes;
  Route route;
  Mapping mapping = Mapping::anonymous;
};

struct Command {
  std::vector<int> waits;       // events that complete before the device moves the first byte
  std::vector<int> host_waits;  // events that complete before a host thread moves the first byte
  std::vector<ChunkCopy> copies;
  int set = 0;
  int chunks = 1;       // chunks that it moves; the set is that of the last
  bool issued = false;  // the caller issued it: the worker only waits until it has landed

  // Whether no host thread has to copy.
  bool immediate() const {
    for (const ChunkCopy& copy : copies) {
      if (copy.route == Route::ring || copy.route == Route::shared) return false;
    }
    return true;
  }

  // Bytes, if all of them go through the pinned ring; else -1.
  std::int64_t ring_bytes() const {
    std::int64_t sum = 0;
    for (const ChunkCopy& copy : copies) {
      if (copy.route != Route::ring) return -1;
      sum += copy.bytes.bytes();
    }
    return sum;
  }
};

}  // namespace sluice::transfer
