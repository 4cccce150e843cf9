// The one place that decides whether a kernel runs with its chain linked in or interpreted, and that keeps linked
// kernels: in memory for the process, on disk for the next process.
//
//   find(request)   known and loaded here -> its kernel
//                   else: not worth it yet, not possible now -> none, and the reason: the interpreter serves
//                         else the library's own list, else disk, else NVRTC + nvJitLink (one thread per chain; others
//                         wait for it)
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "kernels/linking/link_table.h"
#include "kernels/linking/request.h"

namespace sluice {

enum class LinkMode : int {
  never,      // SLUICE_LINK=0
  automatic,  // SLUICE_LINK=1, the default: by LinkPolicy
  always,     // SLUICE_LINK=always: every chain at its first call
};

// Problems below kSmall elements are interpreted kCallsOfSmall times before they are linked: a link costs 0.1 s, which
// a rare small problem never earns back. A kernel that the library contains linked costs a millisecond, and is loaded
// at once.
struct LinkPolicy {
  static constexpr long long kSmall = 1 << 14;
  static constexpr int kCallsOfSmall = 2;
  // Linked kernels of a process: 10 to 100 KiB each, and never unloaded (link_table.h).
  static constexpr int kMostLinked = 4096;
};

struct LinkContext {
  int device;
  int compute_capability;
  cudaStream_t stream;
  long long elements;
  bool ahead;  // link now, whatever the policy
};

struct LinkOutcome {
  const void* kernel = nullptr;  // a cudaKernel_t, loaded on the device; null: run the interpreter
  const char* reason = "";       // reason why there is none
  LinkFault fault = LinkFault::none;
  std::string error;  // the failure, if there was one
};

LinkOutcome find_linked(const LinkRequest& request, const LinkContext& context);

LinkMode link_mode();
LinkMode set_link_mode(LinkMode mode);  // returns the previous one
int set_link_limit(int kernels);        // likewise

struct LinkStatistics {
  long long linked_launches, interpreted_launches;
  long long compiled, read_from_disk, read_from_library, failed, postponed;
  long long linked_kernels, linked_bytes, linked_limit;
  long long prelinked;  // kernels in the library's list
  double compile_seconds;
  std::string last_error;
  std::string cache_directory, cache_problem;
};
LinkStatistics link_statistics();

}  // namespace sluice
