#include "ops/common/plan_text.h"

#include <cstdint>

#include "ops/common/checks.h"

namespace sluice {

DeviceProperties device_from(const char* op, const std::vector<int64_t>& numbers) {
  check(numbers.size() == 5, op, ": device must be five numbers, got ", numbers.size());
  for (int64_t number : numbers) {
    check(number > 0 && number <= INT32_MAX, op, ": device must have numbers from 1 to 2^31 - 1, got ", number);
  }
  const auto at = [&](int i) { return static_cast<int>(numbers[i]); };
  return {at(0), at(1), at(2), at(3), at(4)};
}

void check_result(const char* op, const std::vector<int64_t>& sizes) {
  constexpr int64_t kLimit = int64_t{1} << 48;
  int64_t elements = 1;
  bool fits = true;
  for (int64_t size : sizes) {
    fits = fits && size >= 0 && size < kLimit && !__builtin_mul_overflow(elements, size, &elements) && elements < kLimit;
  }
  check(fits && elements > 0, op, ": the result must have 1 to 2^48 - 1 elements, got ", shape_text(sizes));
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
