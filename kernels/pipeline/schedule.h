// The schedules: who copies, who waits, what overlaps. docs/architecture.md draws them.
#pragma once

#include <cstring>

namespace sluice {

enum class Schedule : int { direct, sync, multi_stage, thread_scope };

inline constexpr const char* kScheduleNames[] = {"direct", "sync", "multi_stage", "thread_scope"};
inline constexpr int kSchedules = 4;

inline constexpr int kMaxDepth = 8;  // stages that a ring has room for

constexpr const char* name_of(Schedule schedule) { return kScheduleNames[static_cast<int>(schedule)]; }

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
