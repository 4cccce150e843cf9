// The schedules: who copies, who waits, what overlaps. docs/pipeline.md draws them, rings.def lists all with a ring.
#pragma once

#include <cstring>

namespace sluice {

enum class Schedule : int {
  direct,
#define SLUICE_RING(name, ...) name,
#include "kernels/shared/pipeline/rings.def"
};

// A schedule as plans need it: a row of rings.def.
struct ScheduleTraits {
  const char* name;
  int fixed_depth, producer_threads, least_capability, storage_bytes;
};

inline constexpr ScheduleTraits kScheduleTraits[] = {
    {.name = "direct", .fixed_depth = 0, .producer_threads = 0, .least_capability = 0, .storage_bytes = 0},
#define SLUICE_RING(name, Pipe, fixed_depth, producer_threads, least_capability, storage_bytes) \
  {#name, fixed_depth, producer_threads, least_capability, storage_bytes},
#include "kernels/shared/pipeline/rings.def"
};
inline constexpr int kSchedules = static_cast<int>(sizeof(kScheduleTraits) / sizeof(ScheduleTraits));

inline constexpr int kMaxDepth = 8;  // stages of the deepest ring

constexpr const ScheduleTraits& traits_of(Schedule schedule) { return kScheduleTraits[static_cast<int>(schedule)]; }
constexpr const char* name_of(Schedule schedule) { return traits_of(schedule).name; }
constexpr int fixed_depth(Schedule schedule) { return traits_of(schedule).fixed_depth; }
constexpr int producer_threads(Schedule schedule) { return traits_of(schedule).producer_threads; }
constexpr int least_capability(Schedule schedule) { return traits_of(schedule).least_capability; }

// The caller's request: a schedule and a depth, or the plan's own choice of either.
struct ScheduleRequest {
  bool automatic = true;
  Schedule schedule = Schedule::direct;
  int depth = 0;  // 0: automatic

  bool operator==(const ScheduleRequest&) const = default;
};

// Reads "auto" or a schedule's name; false for anything else.
inline bool parse_schedule(const char* name, ScheduleRequest& request) {
  request.automatic = std::strcmp(name, "auto") == 0;
  if (request.automatic) return true;
  for (int s = 0; s < kSchedules; ++s) {
    if (std::strcmp(name, kScheduleTraits[s].name) == 0) {
      request.schedule = static_cast<Schedule>(s);
      return true;
    }
  }
  return false;
}

}  // namespace sluice
