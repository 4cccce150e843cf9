// The schedules: who copies, who waits, what overlaps. docs/pipeline.md draws them.
#pragma once

#include <cstring>

namespace sluice {

enum class Schedule : int {
  direct,
  sync,
  cooperative,
  barrier,
  single_stage,
  two_stage,
  multi_stage,
  producer_consumer,
  thread_scope,
  primitives,
  bulk,
};

inline constexpr const char* kScheduleNames[] = {"direct",       "sync",       "cooperative", "barrier",
                                                 "single_stage", "two_stage",  "multi_stage", "producer_consumer",
                                                 "thread_scope", "primitives", "bulk"};
inline constexpr int kSchedules = 11;

inline constexpr int kMaxDepth = 8;  // stages that a ring has room for

constexpr const char* name_of(Schedule schedule) { return kScheduleNames[static_cast<int>(schedule)]; }

// The depth that a schedule is made for; 0 where any will do.
constexpr int fixed_depth(Schedule schedule) {
  return schedule == Schedule::single_stage ? 1 : schedule == Schedule::two_stage ? 2 : 0;
}

// Threads of a block that only copy, beside those that compute: one warp, because a copy of 16 bytes needs a lane.
inline constexpr int kProducerThreads = 32;
constexpr int producer_threads(Schedule schedule) { return schedule == Schedule::producer_consumer ? kProducerThreads : 0; }

// The least compute capability, times ten, that a schedule can run on; 0 where any will do.
constexpr int least_capability(Schedule schedule) { return schedule == Schedule::bulk ? 90 : 0; }

// What the caller asked for: a schedule and a depth, or the plan's own choice of either.
struct ScheduleRequest {
  bool automatic = true;
  Schedule schedule = Schedule::direct;
  int depth = 0;  // 0: automatic
};

// Reads "auto" or a schedule's name; false for anything else.
inline bool parse_schedule(const char* name, ScheduleRequest& request) {
  request.automatic = std::strcmp(name, "auto") == 0;
  if (request.automatic) return true;
  for (int s = 0; s < kSchedules; ++s) {
    if (std::strcmp(name, kScheduleNames[s]) == 0) {
      request.schedule = static_cast<Schedule>(s);
      return true;
    }
  }
  return false;
}

}  // namespace sluice
