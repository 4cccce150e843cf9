// What the scheduler hands to the engine: one chunk's copies in one direction, what they wait for, what they record.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/transfer/mapping.h"
#include "kernels/transfer/strided_copy.h"

namespace sluice::transfer {

// Times of one chunk in flight; its three steps end with events. A chunk has a set of six numbers of events, of which
// three are used; sets are used again after `window` chunks.
enum class Mark : int { fetch_begin, fetched, compute_begin, computed, store_begin, stored };
inline constexpr int kMarks = 6;

constexpr int event_of(int set, Mark mark) { return set * kMarks + static_cast<int>(mark); }

enum class Route : int {
  direct = 0,    // page-locked and in rows: the device's copy engine reads or writes it
  ring = 1,      // staged by threads through the page-locked ring
  shared = 2,    // the device's memory is the host's: threads copy straight into or out of the slot
  pageable = 3,  // as direct, of memory that is not page-locked: the driver stages it, and the host waits. Pages of a
                 // file go by way of a buffer, because the driver's copy could not be left where the file has ended
};
inline constexpr int kRoutes = 4;

struct ChunkCopy {
  StridedCopy bytes;
  Route route;
  Mapping mapping = Mapping::anonymous;
};

struct Command {
  std::vector<int> waits;       // events that must be complete before the device moves the first byte
  std::vector<int> host_waits;  // and before a thread of the host does
  std::vector<ChunkCopy> copies;
  int set = 0;
  bool issued = false;  // by the caller already: nothing is left but to wait until it has landed

  // Whether no thread has to touch the bytes.
  bool immediate() const {
    for (const ChunkCopy& copy : copies) {
      if (copy.route == Route::ring || copy.route == Route::shared) return false;
    }
    return true;
  }
};

}  // namespace sluice::transfer
