// The cache of plans.
#include "kernels/shared/common/remembered.h"

#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/shared/common/architectures.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

TEST(a_result_is_made_once_for_a_key) {
  int made = 0;
  const auto twice = [&](int key, std::size_t hash) {
    return remembered<int, int>(key, hash, [&] { return ++made, 2 * key; });
  };
  CHECK(twice(3, 7) == 6 && twice(3, 7) == 6 && made == 1);
  CHECK(twice(4, 7) == 8 && twice(3, 7) == 6 && made == 3);  // one bucket
  CHECK(twice(5, 8) == 10 && twice(3, 7) == 6 && made == 4);
  int other = 0;
  std::thread([&] { other = twice(3, 7); }).join();
  CHECK(other == 6 && made == 5);  // each thread has its own
}

TEST(a_result_that_could_not_be_made_is_not_kept) {
  const auto of = [](const std::string& key, bool fails) {
    return remembered<std::string, std::string>(key, 1,
                                                [&] { return fails ? throw std::runtime_error("fails") : key + "!"; });
  };
  CHECK(of("a", false) == "a!");
  bool failed = false;
  try {
    of("b", true);
  } catch (const std::runtime_error&) {
    failed = true;
  }
  CHECK(failed && of("a", false) == "a!" && of("b", false) == "b!");
}

TEST(a_plan_depends_on_all_that_is_given) {
  const Conv1dProblem problem = dense(8, 256, 256, 1600, 3);
  const auto text = [](const Conv1dPlan& plan) {
    return plan.method + std::to_string(plan.grid) + plan.reason + describe(plan) +
           std::to_string(plan.workspace_bytes);
  };
  const auto planned = [&](const Conv1dProblem& own, const DeviceProperties& device) {
    return text(plan_conv1d(own, {}, device, false));
  };
  const std::string first = planned(problem, kH200);
  std::set<std::string> found = {first};
  // None of them changes the hash.
  Conv1dProblem packed = problem, padded = problem, chained = problem;
  packed.is_packed = true, padded.padding = 0, chained.has_pre = true, chained.pre_work = 40;
  DeviceProperties small = kH200, old = kH200;
  small.multiprocessors = 16, old.compute_capability = 80;
  found.insert(planned(packed, kH200));
  found.insert(planned(chained, kH200));
  found.insert(planned(problem, small));
  found.insert(planned(problem, old));
  CHECK(found.size() == 5);
  planned(padded, kH200);
  CHECK(planned(problem, kH200) == first);
}
