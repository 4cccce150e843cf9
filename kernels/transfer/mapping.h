// The kind of memory a source is, and releasing the pages of a file that were read.
#pragma once

#include <cstdint>

namespace sluice::transfer {

enum class Mapping : int {
  anonymous = 0,     // ordinary memory
  shared_file = 1,   // pages of the file itself: dropping them loses nothing
  private_file = 2,  // a copy, or several kinds: changed pages exist nowhere else, even if they are read-only now
};

struct MappingInfo {
  Mapping kind = Mapping::anonymous;
  bool writable = true;
};

// All mappings that the range overlaps; writable if all of them are. By a query of Linux 6.11, else from the text of
// /proc/self/maps.
MappingInfo mapping_of(const void* address, std::int64_t bytes);
// By the text alone, which takes half a millisecond.
MappingInfo mapping_by_text(const void* address, std::int64_t bytes);

// Removes whole pages within the range from this process, so that reading a file larger than memory does not fill it.
// The contents stay: pages of a private mapping are reclaimed, never discarded.
void drop_behind(const void* address, std::int64_t bytes, Mapping kind);

// Requests huge pages for memory that has not been written yet.
void advise_huge(void* address, std::int64_t bytes);

}  // namespace sluice::transfer
