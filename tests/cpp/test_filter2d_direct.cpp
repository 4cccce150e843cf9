// Plans of filter2d's columns, tiles and Toeplitz products, and the rows of a border.
#include <vector>

#include "kernels/operators/filter2d/policy.h"
#include "kernels/shared/mma/toeplitz.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

TEST(filter2d_border_rows_are_its_pixels) {
  for (Border border : {Border::zeros, Border::replicate, Border::reflect, Border::circular}) {
    for (int height : {1, 2, 3, 7, 50}) {
      const BorderRows rows(height, border);
      // Up to the widest border that the op takes.
      const int most = border == Border::reflect ? height - 1 : border == Border::circular ? height : 100;
      for (int y = -most; y < height + most; ++y) {
        const long long wanted = pixel_at(y, height, border);
        CHECK(rows.has(rows.at(y)) == (wanted >= 0));
        CHECK(wanted < 0 || rows.at(y) == wanted);
      }
    }
  }
}

TEST(filter2d_columns_cover_the_result) {
  for (int side : {3, 5, 7, 9}) {
    for (long long channels : {1, 2, 3, 40, 64, 65, 1000}) {
      for (bool in_channels : {false, true}) {
        for (long long width : {1, 18, 37, 4000}) {
          for (long long height : {1, 40, 1081}) {
            Filter2dProblem problem = square(3, channels, height, width, side, DType::float32);
            problem.in_channels = in_channels && channels > 1;
            problem.column_stride = problem.in_channels ? channels : 1;
            const Filter2dPlan plan = plan_filter2d(problem, ScheduleRequest{}, kH200, false);
            CHECK(is_of(plan.which, Filter2dFamily::columns) && plan.threads == column_threads(side));
            CHECK(plan.interleaved == 1 || problem.in_channels);
            CHECK(plan.interleaved * plan.groups >= channels && plan.interleaved * (plan.groups - 1) < channels);
            // Threads also copy the positions that the last windows reach.
            CHECK((side - 1) * plan.interleaved <= plan.threads);
            CHECK(plan.positions == (width + side - 1) * plan.interleaved);
            CHECK((plan.strips_down - 1) * plan.strip_rows < height && height <= plan.strips_down * plan.strip_rows);
            const long long blocks = plan.grid / plan.strips_down, positions = 3 * plan.groups * plan.positions;
            CHECK(blocks * plan.strips_down == plan.grid);
            CHECK((blocks - 1) * plan.threads < positions && positions <= blocks * plan.threads);
            CHECK(plan.shared_memory == 2 * column_rows(side) * (plan.threads + (side - 1) * plan.interleaved) * 4);
          }
        }
      }
    }
  }
  Filter2dProblem problem = square(1 << 20, 1, 64, 4000, 3, DType::float32);
  CHECK(!is_of(plan_filter2d(problem, ScheduleRequest{}, kH200, false).which,
               Filter2dFamily::columns));  // positions beyond 2^30
}

TEST(filter2d_tiles_cover_the_result) {
  const auto covers = [](const Filter2dProblem& problem) {
    const Filter2dPlan plan = plan_filter2d(problem, forced(Schedule::direct), kH200, false);
    CHECK(plan.which == (problem.separable ? Filter2dKernel::tiled_separable : Filter2dKernel::tiled));
    const int patch_rows = problem.separable ? kSeparableRows : kPatchRows;
    const long long columns = plan.lanes * kTiledColumns, rows = plan.groups_down * patch_rows;
    CHECK((plan.tiles_across - 1) * columns < problem.output_width);
    CHECK(problem.output_width <= plan.tiles_across * columns);
    CHECK((plan.tiles_down - 1) * rows < problem.output_height && problem.output_height <= plan.tiles_down * rows);
    CHECK(plan.grid == problem.batch * problem.channels * plan.tiles_across * plan.tiles_down);
    CHECK(plan.threads <= kTiledThreads && plan.threads >= plan.lanes * plan.groups_down && plan.threads % 32 == 0);
    CHECK(32 % plan.lanes == 0);  // a warp filters whole rows across
    // The even words of a row, then the odd words, up to the last lane's last tap.
    CHECK(plan.pitch_words / 2 * 2 * kTapsAtOnce >= columns + problem.kernel_width);
    CHECK(plan.stage_words == (rows + problem.kernel_height - 1) * plan.pitch_words);
    CHECK(plan.shared_memory == plan.stage_words * 16 + plan.tap_bytes);
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
  };
  for (bool separable : {false, true}) {
    for (DType dtype : {DType::float32, DType::bfloat16}) {
      for (auto [height, width] : {std::pair{11, 11}, {31, 31}, {63, 63}, {3, 40}, {100, 5}, {16, 9}}) {
        for (long long extent : {1, 18, 66, 400, 4000}) {
          for (long long output_height : {1, 20, 65, 1081}) {
            Filter2dProblem problem = square(3, 2, output_height, extent, 3, dtype);
            problem.kernel_height = height, problem.kernel_width = width, problem.separable = separable;
            covers(problem);
          }
        }
      }
    }
  }
  // A tile of a thousand rows and columns does not fit.
  Filter2dProblem problem = square(1, 1, 2000, 2000, 999, DType::float32);
  CHECK(plan_filter2d(problem, forced(Schedule::direct), kH200, false).which == Filter2dKernel::patches);
}

TEST(filter2d_toeplitz_tiles_cover_the_result) {
  const auto covers = [](const Filter2dProblem& problem) {
    const Filter2dPlan plan = plan_filter2d(problem, ScheduleRequest{}, kH200, false);
    CHECK(plan.which == Filter2dKernel::toeplitz);
    const long long columns = plan.lanes * kVectorOutputs, rows = plan.groups_down * kToeplitzRows;
    CHECK((plan.tiles_across - 1) * columns < problem.output_width);
    CHECK(problem.output_width <= plan.tiles_across * columns);
    CHECK((plan.tiles_down - 1) * rows < problem.output_height && problem.output_height <= plan.tiles_down * rows);
    CHECK(plan.grid == problem.batch * problem.channels * plan.tiles_across * plan.tiles_down);
    // A warp has all groups of its units, and no warp has none.
    const int groups = plan.lanes * plan.groups_down, of_warp = kToeplitzUnits * kUnitGroups;
    CHECK(groups <= plan.threads / 32 * of_warp && groups > (plan.threads / 32 - 1) * of_warp);
    // The last group's windows are within a row, and the windows of a row's last output.
    CHECK(plan.steps * kStepPositions >= problem.kernel_width + kVectorOutputs - 1);
    CHECK(plan.pitch_words * kVectorOutputs == (plan.lanes - 1) * kVectorOutputs + plan.steps * kStepPositions);
    CHECK(plan.stage_words == (rows + problem.kernel_height - 1) * plan.pitch_words);
    CHECK(plan.shared_memory == plan.stage_words * 16 + plan.tap_bytes);
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
  };
  for (int side : {7, 9, 15, 31, 63}) {
    for (long long width : {1, 18, 66, 400, 4000}) {
      for (long long height : {1, 20, 65, 1081}) covers(square(3, 2, height, width, side, DType::bfloat16));
    }
  }
  for (auto [height, width] : {std::pair{1, 45}, {45, 1}, {3, 40}, {200, 2}, {2, 1000}}) {
    Filter2dProblem problem = square(1, 1, 300, 1500, 3, DType::float16);
    problem.kernel_height = height, problem.kernel_width = width;
    covers(problem);
  }
}

TEST(filter2d_takes_tensor_cores_where_they_are_faster) {
  const auto kernel = [](const Filter2dProblem& problem) {
    return plan_filter2d(problem, ScheduleRequest{}, kH200, false).which;
  };
  Filter2dProblem problem = square(2, 3, 100, 200, 7, DType::float16);
  CHECK(kernel(problem) == Filter2dKernel::toeplitz);
  // All schedules have the same bits.
  CHECK(plan_filter2d(problem, forced(Schedule::direct), kH200, false).which == Filter2dKernel::columns7);
  problem.dtype = DType::float32;
  CHECK(kernel(problem) == Filter2dKernel::columns7);
  problem.dtype = DType::bfloat16, problem.column_stride = 3, problem.in_channels = true;
  CHECK(kernel(problem) == Filter2dKernel::toeplitz);
  problem.kernel_height = problem.kernel_width = 11;
  CHECK(kernel(problem) == Filter2dKernel::toeplitz);
  problem.column_stride = 64;
  CHECK(kernel(problem) != Filter2dKernel::toeplitz);
  problem.column_stride = 1, problem.separable = true;
  CHECK(kernel(problem) != Filter2dKernel::toeplitz);
  problem.separable = false, problem.sampling.dilation_down = 2;
  CHECK(kernel(problem) == Filter2dKernel::sampled);
  problem.sampling = {.border = Border::circular};
  CHECK(kernel(problem) == Filter2dKernel::toeplitz);
  problem.has_small_planes = false;
  CHECK(kernel(problem) == Filter2dKernel::sampled);
}
