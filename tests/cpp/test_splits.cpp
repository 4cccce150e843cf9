// Split-K: which tiles are split, and that their splits take all of their k-blocks.
#include <map>
#include <random>

#include "kernels/operators/conv1d/dense/splits.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

// Every tile is taken whole, or by all of its splits, which have all of its k-blocks.
void check_splits(const DensePlan& own) {
  const DenseSplits splits = dense_splits(own, nullptr);
  std::map<int, int> k_blocks;  // that splits have taken so far, by tile
  for (int index = 0; index < own.tiles; ++index) {
    const int split = splits.split_of(index), tile = splits.tile_of(index);
    int& taken = k_blocks[tile];
    CHECK(splits.is_whole(index) == (split == 0) && splits.first_k_block(split) == taken);
    const int count = splits.k_blocks_of(split, own.order.k_blocks);
    CHECK(count > 0);
    taken += count;
  }
  CHECK(static_cast<long long>(k_blocks.size()) == own.whole_tiles + own.split_tiles());
  for (const auto& [tile, taken] : k_blocks) CHECK(taken == own.order.k_blocks);
}

}  // namespace

TEST(sums_of_the_last_tiles_are_split) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int few[2] = {}, many[2] = {};
  const auto every_kind_is_drawn = [&] { return few[0] > 30 && few[1] > 30 && many[0] > 3 && many[1] > 3; };
  for (int n = 0; n < 600 || (n < 20000 && !every_kind_is_drawn()); ++n) {
    const DType dtype = n % 4 < 2 ? DType::float16 : DType::float32;
    Conv1dProblem problem = dense(draw(1, 9), draw(65, 2000), draw(8, 900), draw(20, 2000), draw(1, 65));
    problem.dtype = dtype, problem.allows_tf32 = dtype == DType::float32;
    problem.may_split = n % 3 != 0;
    problem.fetch = n % 2 == 0 ? DenseFetch::channels : DenseFetch::elements;
    const Conv1dPlan plan = plan_dense(problem, kH200);
    const DensePlan& own = plan.dense;
    if (plan.threads == 0 || own.splits == 1) continue;
    ++(own.whole_tiles == 0 ? few : many)[dtype == DType::float32];
    CHECK(problem.may_split && own.is_general && !own.is_pingpong && !own.resident);
    CHECK((own.splits - 1) * own.k_blocks_of_split() < own.order.k_blocks);
    CHECK(own.splits * own.k_blocks_of_split() >= own.order.k_blocks);
    // All splits are in the last wave.
    CHECK(own.whole_tiles % kH200.multiprocessors == 0 && own.tiles - own.whole_tiles <= kH200.multiprocessors);
    CHECK(plan.grid == min_of<long long>(own.tiles, kH200.multiprocessors));
    CHECK(own.whole_tiles + own.split_tiles() == problem.batch * own.channel_tiles * own.position_tiles);
    CHECK(plan.workspace_bytes >= own.order.bytes() + own.sums_bytes && own.sums_bytes == split_bytes(own));
    check_splits(own);
  }
  CHECK(every_kind_is_drawn());
  Conv1dProblem problem = dense(2, 512, 64, 500, 65);
  problem.may_split = true;
  CHECK(plan_dense(problem, kH200).dense.splits > 1);
}
