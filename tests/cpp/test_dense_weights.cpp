// Where the blocks of a dense convolution have their weights from.
#include <random>

#include "kernels/shared/common/architectures.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

// Every tile has a block, and the tiles of a block that keeps its weights have the same channels.
void check_blocks(const Conv1dProblem& problem, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  CHECK(own.whole_tiles + own.split_tiles() == problem.batch * own.position_tiles * own.channel_tiles);
  CHECK(plan.grid <= min_of<long long>(own.tiles, kH200.multiprocessors));
  if (own.resident) {
    CHECK(own.splits == 1 && plan.grid % own.channel_tiles == 0);
  } else {
    CHECK(plan.grid == min_of<long long>(own.tiles, kH200.multiprocessors));
  }
}

}  // namespace

TEST(blocks_have_all_tiles) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int found[2] = {};
  for (int n = 0; n < 3000; ++n) {
    const int groups = n % 5 == 0 ? draw(2, 20) : 1;
    Conv1dProblem problem =
        dense(draw(1, 9), groups * draw(1, 400), groups * draw(1, 90) * 8, draw(16, 20000), draw(1, 20), draw(1, 3));
    problem.groups = groups;
    problem.stride = n % 3 == 0 ? draw(1, 8) : 1;
    problem.may_split = groups == 1 && n % 2 == 0;
    const Conv1dPlan plan = plan_dense_unconverted(problem, kH200);
    if (plan.threads == 0) continue;
    ++found[plan.dense.resident];
    check_blocks(problem, plan);
  }
  CHECK(found[0] > 0 && found[1] > 0);
}

TEST(few_weights_stay_in_shared_memory) {
  CHECK(plan_dense(dense(4, 32, 32, 220672, 11, 5), kH200).dense.resident);
  CHECK(plan_dense(dense(4, 64, 64, 110336, 3), kH200).dense.resident);
  CHECK(!plan_dense(dense(4, 512, 512, 5000, 7), kH200).dense.resident);
  CHECK(plan_dense(dense(4, 16, 1024, 5000, 3), kH200).dense.resident);  // each block's tiles have the same channels
}
