// What kind of memory a source is, and giving back the pages of a file that were read.
#pragma once

#include <cstdint>

namespace sluice::transfer {

enum class Mapping : int {
  anonymous = 0,     // ordinary memory
  shared_file = 1,   // pages of the file itself: dropping them loses nothing
  private_file = 2,  // a copy, or of several kinds: a changed page is nowhere else, also one that is read-only now
};

struct MappingInfo {
  Mapping kind = Mapping::anonymous;
  bool writable = true;
};

// Of all mappings that the range lies in, as /proc/self/maps says them; writable where all of them are.
MappingInfo mapping_of(const void* address, std::int64_t bytes);

// Takes whole pages within the range out of this process, so that reading a file larger than memory does not fill it.
// The contents stay: of a private mapping the kernel is asked to reclaim, never to discard.
void drop_behind(const void* address, std::int64_t bytes, Mapping kind);

// Asks for huge pages for memory that is about to be written for the first time.
void advise_huge(void* address, std::int64_t bytes);

}  // namespace sluice::transfer
