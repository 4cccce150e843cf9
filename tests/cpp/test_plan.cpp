#include <utility>

#include "kernels/conv1d/conv1d.h"
#include "kernels/transform/transform.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {
ScheduleRequest forced(Schedule schedule, int depth = 0) { return {false, schedule, depth}; }
}  // namespace

TEST(a_ring_has_enough_bytes_in_flight_and_fits) {
  for (int stage_bytes : {512, 4096, 8192, 65536, 200000}) {
    const RingShape ring = shape_ring(stage_bytes, 8, 0, kH200);
    CHECK(ring.depth >= 1 && ring.depth <= kMaxDepth && ring.blocks >= 1);
    CHECK(ring.depth * stage_bytes <= kH200.shared_memory_per_block);
  }
  CHECK(shape_ring(300000, 8, 0, kH200).depth == 0);
  CHECK(shape_ring(60000, 8, 4, kH200).depth == 0);
  CHECK(shape_ring(60000, 8, 3, kH200).depth == 3);
}

TEST(transform_tiles_cover_rows_that_start_anywhere) {
  const Plan flat = plan_transform({8192, 8192, DType::bfloat16, 0, Walk::flat}, ScheduleRequest{}, kH200, false);
  CHECK(flat.schedule == Schedule::direct && flat.grid == 4);
  const Plan shifted = plan_transform({8192, 8192, DType::bfloat16, 3, Walk::flat}, ScheduleRequest{}, kH200, false);
  CHECK(shifted.grid == 5);
  const Plan rows = plan_transform({100 * 7, 7, DType::float32, 0, Walk::strided}, forced(Schedule::sync), kH200, false);
  CHECK(rows.grid == 100 && rows.shared_memory > 0);
}

TEST(rows_are_cut_evenly) {
  const auto blocks = [](long long rows, long long inner, DType dtype) {
    const TransformProblem problem = contiguous_problem(rows * inner, inner, dtype);
    CHECK(problem.walk == Walk::rows);
    const Plan plan = plan_transform(problem, ScheduleRequest{}, kH200, true);
    CHECK(plan.threads % 32 == 0 && plan.threads <= kMostTransformThreads);
    CHECK(plan.grid % rows == 0 && plan.grid / rows * plan.tile >= problem.vectors_per_row() * word_elements(dtype));
    return std::pair<long long, int>{plan.grid / rows, plan.threads};
  };
  CHECK(blocks(10, 8192, DType::bfloat16) == std::pair(4LL, 128));
  CHECK(blocks(10, 4100, DType::bfloat16) == std::pair(3LL, 96));  // 513 vectors: rows begin up to 4 elements into one
  CHECK(contiguous_problem(41000, 4100, DType::bfloat16).vectors_per_row() == 513);
  CHECK(contiguous_problem(41010, 4101, DType::bfloat16).vectors_per_row() == 514);
}

TEST(conv1d_picks_its_layout_and_refuses_what_does_not_fit) {
  Conv1dProblem problem{8, 512, 2048, 1, 4, 1, 1, DType::bfloat16, false, false};
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200).layout == Conv1dLayout::channels_first);
  problem.channels_last = true;
  const Conv1dPlan last = plan_conv1d(problem, ScheduleRequest{}, kH200);
  CHECK(last.layout == Conv1dLayout::channels_last && last.grid == 8 * 8 * 32);
  problem.taps = 4000;  // too many for a block of channels, not for a row
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200).layout == Conv1dLayout::channels_first);
  problem.taps = 100000;
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200).threads == 0);
  CHECK(plan_conv1d(problem, forced(Schedule::multi_stage), kH200).threads == 0);
  problem.dilation = 2000000000;
  CHECK(plan_conv1d(problem, forced(Schedule::sync), kH200).threads == 0);
}
