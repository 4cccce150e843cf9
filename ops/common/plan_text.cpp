#include "ops/common/plan_text.h"

#include <cstdint>
#include <sstream>
#include <string_view>

#include "ops/common/checks.h"

namespace sluice {
namespace {

DeviceProperties device_from(const char* op, const std::vector<int64_t>& numbers) {
  check(numbers.size() == 5, op, ": device must be five numbers, got ", numbers.size());
  for (int64_t number : numbers) {
    check(number > 0 && number <= INT32_MAX, op, ": device must have numbers from 1 to 2^31 - 1, got ", number);
  }
  const auto at = [&](int i) { return static_cast<int>(numbers[i]); };
  return {.compute_capability = at(0),
          .multiprocessors = at(1),
          .threads_per_multiprocessor = at(2),
          .shared_memory_per_multiprocessor = at(3),
          .shared_memory_per_block = at(4)};
}

}  // namespace

CallMode mode_of_plan(const char* op, bool linked, const std::vector<int64_t>& device) {
  return {.action = Action::plan, .device = device_from(op, device), .linked = linked};
}

void check_planned(const char* op, const CallMode& mode, const std::vector<int64_t>& sizes) {
  if (!mode.plans()) return;
  constexpr int64_t kLimit = int64_t{1} << 48;
  int64_t elements = 1;
  bool fits = true;
  for (int64_t size : sizes) {
    fits = fits && size < kLimit && !__builtin_mul_overflow(elements, size, &elements) && elements < kLimit;
  }
  check(fits && elements > 0, op, ": the result must have 1 to 2^48 - 1 elements, got ", ShapeText{sizes});
}

void check_plan(const char* op, const Plan& plan, const ScheduleRequest& request) {
  check(plan.threads > 0, op, ": schedule must be able to run here: ", plan.reason, ", got ", name_of(plan.schedule),
        " at depth ", request.depth);
}

// A JSON object. Except for `elements`, its keys are the fields of Python's Plan.
std::string plan_text(const Plan& plan, const CallMode& mode, bool chained, int64_t elements,
                      const std::string& detail) {
  std::ostringstream text;
  const auto string = [&](const char* key, const char* value) { text << '"' << key << "\": \"" << value << "\", "; };
  const auto number = [&](const char* key, long long value) { text << '"' << key << "\": " << value << ", "; };
  text << '{';
  string("method", plan.method);
  string("kernel", plan.kernel);
  string("schedule", plan.threads > 0 ? name_of(plan.schedule) : "aten");
  string("form", !chained ? "" : mode.linked ? "linked" : "interpreted");
  number("depth", plan.depth);
  number("tile", plan.tile);
  number("threads", plan.threads);
  number("shared_memory", plan.shared_memory);
  number("workspace_bytes", plan.workspace_bytes);
  number("alignment", plan.alignment);
  number("copy_width", plan.copy_width);
  number("resident_blocks", plan.resident_blocks);
  number("grid", plan.grid);
  number("elements", elements);
  string("detail", detail.c_str());
  text << "\"reason\": \"" << plan.reason << "\"}";
  return text.str();
}

}  // namespace sluice
