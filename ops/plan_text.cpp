#include "ops/plan_text.h"

#include "ops/checks.h"

namespace sluice {

DeviceProperties device_from(const char* op, const std::vector<int64_t>& numbers) {
  check(numbers.size() == 5, op, ": device must be five numbers, got ", numbers.size());
  const auto at = [&](int i) { return static_cast<int>(numbers[i]); };
  return {at(0), at(1), at(2), at(3), at(4)};
}

std::string plan_text(const Plan& plan) {
  check(plan.threads > 0, "plan: schedule must be able to run here: ", plan.reason, ", got ", name_of(plan.schedule));
  std::ostringstream text;
  text << "{\"schedule\": \"" << name_of(plan.schedule) << "\", \"depth\": " << plan.depth << ", \"tile\": " << plan.tile
       << ", \"threads\": " << plan.threads << ", \"shared_memory\": " << plan.shared_memory << ", \"grid\": " << plan.grid
       << ", \"reason\": \"" << plan.reason << "\"}";
  return text.str();
}

}  // namespace sluice
