#include <string>
#include <vector>

#include "kernels/operators/filter2d/policy.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

TEST(filter2d_tiles_cover_the_result_with_few_threads_idle) {
  for (DType dtype : {DType::float32, DType::float16, DType::float64}) {
    for (bool separable : {false, true}) {
      for (long long width : {1, 7, 28, 200, 1920}) {
        for (long long height : {1, 5, 33, 1080}) {
          for (bool shifted : {false, true}) {
            Filter2dProblem problem = square(3, 2, height, width, 4, dtype);
            problem.kernel_width = 2;
            problem.separable = separable;
            problem.shifted = shifted;
            for (const ScheduleRequest& request : {ScheduleRequest{}, forced(Schedule::sync)}) {
              const Filter2dPlan plan = plan_filter2d(problem, request, kH200, true);
              const int rows = filter2d_rows(separable, plan.schedule == Schedule::direct);
              const int slack = shifted ? word_elements(dtype) - 1 : 0;
              const long long across = plan.lanes * filter2d_columns(dtype),
                              down = kFilter2dThreads / plan.lanes * rows;
              CHECK(plan.threads == kFilter2dThreads && plan.threads % plan.lanes == 0);
              CHECK((plan.tiles_across - 1) * across < width + slack && width + slack <= plan.tiles_across * across);
              CHECK((plan.tiles_down - 1) * down < height && height <= plan.tiles_down * down);
              if (plan.schedule == Schedule::direct) CHECK(plan.grid == 3 * 2 * plan.tiles_across * plan.tiles_down);
            }
          }
        }
      }
    }
  }
  const auto lanes = [](long long height, long long width) {
    Filter2dProblem problem = square(64, 1, height, width, 3, DType::float32);
    problem.kernel_width = 2;
    return plan_filter2d(problem, ScheduleRequest{}, kH200, true).lanes;
  };
  CHECK(lanes(1080, 1920) == 16);
  CHECK(lanes(100, 28) == 4);
  CHECK(lanes(4000, 2) == 1);
  CHECK(lanes(1, 100000) == 128);
}

TEST(filter2d_stages_hold_a_tile_with_its_halo_and_refuse_what_does_not_fit) {
  Filter2dProblem problem = square(64, 1, 1080, 1920, 3, DType::float32);
  const Filter2dPlan plan = plan_filter2d(problem, forced(Schedule::multi_stage), kH200, true);
  CHECK(plan.pitch_words == 16 * 2 + 1 + 1 && plan.stage_words == (32 + 2) * plan.pitch_words);
  CHECK(plan.tap_bytes == 3 * 4 * 4 && plan.shared_memory == plan.depth * (plan.stage_words * 16 + plan.tap_bytes));
  problem.separable = true;
  CHECK(plan_filter2d(problem, forced(Schedule::sync), kH200, true).tap_bytes == 32);  // 4 and 3 floats, in words
  problem.separable = false;
  problem.kernel_height = problem.kernel_width = 31;
  for (DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    problem.dtype = dtype;
    CHECK(plan_filter2d(problem, forced(Schedule::sync), kH200, true).depth >= 2);
  }
  problem.kernel_height = 500;
  CHECK(plan_filter2d(problem, forced(Schedule::sync), kH200, true).threads == 0);
  CHECK(plan_filter2d(problem, ScheduleRequest{}, kH200, true).threads > 0);
  problem.kernel_width = 500;
  CHECK(plan_filter2d(problem, ScheduleRequest{}, kH200, true).threads == 0);
}

TEST(filter2d_plans_say_whether_rows_are_shifted) {
  for (bool shifted : {false, true}) {
    Filter2dProblem problem = square(2, 3, 64, 64, 7, DType::float64);
    problem.shifted = shifted;
    for (Schedule schedule : {Schedule::direct, Schedule::sync}) {
      CHECK(plan_filter2d(problem, forced(schedule), kH200, true).shifted == shifted);
    }
  }
}

TEST(filter2d_strips_cover_aligned_planes) {
  for (DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (int side : {3, 5}) {
      for (long long words : {1, 3, 30, 480}) {
        for (long long height : {1, 4, 71, 72, 73, 1080}) {
          for (long long batch : {1, 64, 5000}) {
            const int width = word_elements(dtype);
            Filter2dProblem problem = square(batch, 3, height, words * width, side, dtype);
            problem.aligned = true;
            const Filter2dPlan plan = plan_filter2d(problem, ScheduleRequest{}, kH200, false);
            const long long rows = plan.strip_rows;
            CHECK(plan.which == (side == 3 ? Filter2dKernel::aligned3 : Filter2dKernel::aligned5));
            CHECK(plan.strips_across == words && (plan.strips_down - 1) * rows < height &&
                  height <= plan.strips_down * rows);
            CHECK(rows >= 1 && (side == 5 || rows == aligned_rows(dtype)));
            CHECK(plan.threads % 32 == 0 && plan.threads <= kFilter2dThreads && plan.shared_memory == 0);
            const long long strips = plan.strips_across * plan.strips_down, blocks = plan.blocks_per_plane;
            CHECK((blocks - 1) * plan.threads < strips && strips <= blocks * plan.threads);
            CHECK(plan.grid == batch * 3 * blocks && plan.tile == plan.threads * rows * width);
          }
        }
      }
    }
  }
  const auto rows = [](long long batch, long long height, DType dtype) {
    Filter2dProblem problem = square(batch, 1, height, 1920, 5, dtype);
    problem.aligned = true;
    return plan_filter2d(problem, ScheduleRequest{}, kH200, false).strip_rows;
  };
  CHECK(rows(64, 1080, DType::float32) == 72 && rows(64, 1080, DType::float16) == 36);  // as measured
  CHECK(rows(1, 1080, DType::float16) <= 16);                                           // one image feeds all SMs
  CHECK(rows(64, 100, DType::float16) == 34);  // all strips have the same height
}

TEST(filter2d_picks_the_kernel_that_can) {
  Filter2dProblem aligned = square(8, 3, 100, 240, 3, DType::float16);
  aligned.aligned = true;
  const auto kernel = [](const Filter2dProblem& problem, bool linked = false,
                         const ScheduleRequest& request = forced(Schedule::direct)) {
    return plan_filter2d(problem, request, kH200, linked).which;
  };
  CHECK(kernel(aligned) == Filter2dKernel::aligned3);
  CHECK(kernel(aligned, false, ScheduleRequest{}) == Filter2dKernel::aligned3);
  CHECK(kernel(aligned, false, forced(Schedule::sync)) == Filter2dKernel::staged);
  Filter2dProblem other = aligned;
  other.kernel_height = other.kernel_width = 5;
  CHECK(kernel(other) == Filter2dKernel::aligned5);
  other.aligned = false;
  CHECK(kernel(other) == Filter2dKernel::columns5);
  other.kernel_width = 3;
  CHECK(kernel(other) == Filter2dKernel::tiled);
  other.kernel_width = 2;
  CHECK(kernel(other) == Filter2dKernel::patches);
  other = aligned;
  other.aligned = false;
  CHECK(kernel(other) == Filter2dKernel::columns3);
  other.has_small_planes = false;
  CHECK(kernel(other) == Filter2dKernel::square3);
  other = aligned;
  other.separable = true;
  CHECK(kernel(other) == Filter2dKernel::separable);
  other = aligned;
  other.dtype = DType::float64;
  CHECK(kernel(other) == Filter2dKernel::square3);
  other = aligned;
  other.has_pre = true;
  CHECK(kernel(other, true) == Filter2dKernel::patches);
  other = aligned;
  other.has_post = true;
  CHECK(kernel(other, false) == Filter2dKernel::square3 && kernel(other, true) == Filter2dKernel::aligned3);
  other.has_tensors = true;
  CHECK(kernel(other, false) == Filter2dKernel::patches && kernel(other, true) == Filter2dKernel::aligned3);
  other = aligned;
  other.batch = 1LL << 30;
  CHECK(kernel(other) == Filter2dKernel::square3);
}

TEST(filter2d_is_aligned_where_rows_are_whole_words) {
  alignas(16) char image[64], output[64];
  Filter2dParams whole{};
  whole.image.data = image;
  whole.output.data = output;
  whole.image.dtype = whole.output.dtype = DType::float16;
  whole.batch = 2, whole.channels = 3, whole.height = 50, whole.width = 240;
  whole.output_height = 50, whole.output_width = 240, whole.kernel_height = whole.kernel_width = 5,
  whole.top = whole.left = 2;
  const long long strides[4] = {3 * 50 * 240, 50 * 240, 240, 1};
  for (int d = 0; d < 4; ++d) whole.image.strides[d] = whole.output.strides[d] = strides[d];
  const auto changed = [&](auto change) {
    Filter2dParams params = whole;
    change(params);
    return is_aligned(params);
  };
  CHECK(is_aligned(whole) && problem_of(whole).aligned && !problem_of(whole).has_pre && !problem_of(whole).has_post);
  CHECK(changed([](auto& p) { p.top = 0, p.output_height = 46; }));
  CHECK(changed([](auto& p) { p.top = 4, p.output_height = 54; }));
  CHECK(!changed([](auto& p) { p.top = 5, p.output_height = 56; }));
  CHECK(!changed([](auto& p) { p.left = 1; }));
  CHECK(!changed([](auto& p) { p.left = 0, p.output_width = 236; }));
  CHECK(!changed([](auto& p) { p.width = p.output_width = 236; }));
  CHECK(!changed([&](auto& p) { p.image.data = image + 8; }));
  CHECK(!changed([&](auto& p) { p.output.data = output + 8; }));
  for (int d = 0; d < 4; ++d) {
    CHECK(!changed([d](auto& p) { p.image.strides[d] += 4; }));
    CHECK(!changed([d](auto& p) { p.output.strides[d] += 4; }));
    CHECK(changed([d](auto& p) { p.output.strides[d] += d == 3 ? 0 : 8; }));
  }
  CHECK(changed([](auto& p) { p.batch = 1, p.image.strides[0] = p.output.strides[0] = 1; }));
  CHECK(changed([](auto& p) { p.channels = 1, p.image.strides[1] = p.output.strides[1] = 7; }));
  CHECK(changed([](auto& p) { p.output.dtype = DType::float32; }));
  // Four elements of an output of a half type are eight bytes.
  CHECK(
      changed([&](auto& p) { p.image.dtype = DType::float32, p.output.data = output + 8, p.output.strides[2] = 244; }));
  CHECK(!changed([&](auto& p) { p.image.dtype = DType::float32, p.output.data = output + 4; }));
}

TEST(filter2d_finds_the_pixels_of_a_border) {
  const auto row = [](Border border) {
    std::string found;
    for (long long i = -3; i < 7; ++i) found += std::to_string(pixel_at(i, 4, border)) + " ";
    return found;
  };
  CHECK(row(Border::zeros) == "-1 -1 -1 0 1 2 3 -1 -1 -1 ");
  CHECK(row(Border::replicate) == "0 0 0 0 1 2 3 3 3 3 ");
  CHECK(row(Border::reflect) == "3 2 1 0 1 2 3 2 1 0 ");
  CHECK(row(Border::circular) == "1 2 3 0 1 2 3 0 1 2 ");
  // Further out than any border: no pixel.
  CHECK(pixel_at(-9, 4, Border::reflect) == -1 && pixel_at(-9, 4, Border::circular) < 0);
  CHECK(pixel_at(12, 4, Border::reflect) < 0 && pixel_at(12, 4, Border::circular) == -1);
}

TEST(filter2d_frames_and_interiors_have_every_result_once) {
  for (int side : {3, 5}) {
    for (int top = 0; top < side; ++top) {
      for (int left = 0; left < side; ++left) {
        constexpr long long kHeight = 12, kWidth = 15;
        const long long height = kHeight + 2 * top - side + 1, width = kWidth + 2 * left - side + 1;
        const Filter2dInterior interior = interior_of(kHeight, kWidth, height, width, side, top, left);
        std::vector<int> times(height * width, 0);
        for (int y = interior.row; y < interior.end_row; ++y) {
          // Windows are inside the image, and off its first and last row.
          CHECK(y - top >= 1 && y - top + side <= kHeight - 1);
          for (int x = interior.column; x < interior.end_column; ++x) {
            CHECK(x - left >= 0 && x - left + side <= kWidth);
            ++times[y * width + x];
          }
        }
        for (long long i = 0; i < interior.frame(height, width); ++i) {
          const FramePixel at = frame_pixel(interior, height, width, i);
          CHECK(at.row >= 0 && at.row < height && at.column >= 0 && at.column < width);
          ++times[at.row * width + at.column];
        }
        for (int count : times) CHECK(count == 1);
      }
    }
  }
  CHECK(interior_of(3, 100, 3, 100, 3, 1, 1).end_row == 0);  // only a first and a last row
}

TEST(filter2d_unaligned_strips_cover_their_interior) {
  for (DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (int side : {3, 5}) {
      if (side == 5 && dtype != DType::float32) continue;  // side 5 has images of bytes
      for (long long width : {64, 65, 131, 1919, 4000}) {
        for (long long height : {64, 71, 1079}) {
          for (long long batch : {1, 64, 3000}) {
            Filter2dProblem problem = square(batch, 3, height, width, side, dtype);
            problem.in_rows = true;
            problem.sampling.bytes = side == 5;
            problem.interior = interior_of(height, width, height, width, side, side / 2, side / 2);
            const Filter2dPlan plan = plan_filter2d(problem, ScheduleRequest{}, kH200, false);
            CHECK(plan.which == (side == 3 ? Filter2dKernel::unaligned3 : Filter2dKernel::bytes_unaligned5));
            const Filter2dInterior& interior = problem.interior;
            // Wherever a word of the output starts, one more word than the columns fill has the last of them.
            const long long elements = word_elements(dtype);
            CHECK(plan.strips_across * elements - (elements - 1) >= interior.end_column);
            CHECK((plan.warps_across - 1) * kUnalignedLanes < plan.strips_across &&
                  plan.strips_across <= plan.warps_across * kUnalignedLanes);
            const long long rows = interior.end_row - interior.row;
            CHECK((plan.strips_down - 1) * plan.strip_rows < rows && rows <= plan.strips_down * plan.strip_rows);
            CHECK(plan.strip_blocks * 4LL >= plan.warps_across * plan.strips_down);
            const long long frame = (plan.blocks_per_plane - plan.strip_blocks) * plan.threads;
            CHECK(frame >= interior.frame(height, width) && frame - plan.threads < interior.frame(height, width));
            CHECK(plan.grid == batch * 3 * plan.blocks_per_plane && plan.threads == kFilter2dThreads);
          }
        }
      }
    }
  }
}

TEST(filter2d_rings_refuse_windows_and_say_why) {
  Filter2dProblem problem = square(2, 3, 100, 240, 7, DType::float32);
  const auto reason = [&](const Filter2dSampling& sampling) {
    problem.sampling = sampling;
    CHECK(plan_filter2d(problem, ScheduleRequest{}, kH200, true).threads > 0);
    const Filter2dPlan plan = plan_filter2d(problem, forced(Schedule::multi_stage), kH200, true);
    return plan.threads == 0 ? std::string(plan.reason) : std::string();
  };
  CHECK(reason({.stride_across = 2}).find("stride and dilation") != std::string::npos);
  CHECK(reason({.dilation_down = 2}).find("stride and dilation") != std::string::npos);
  CHECK(reason({.border = Border::circular}).find("padding_mode") != std::string::npos);
  CHECK(reason({.bytes = true}).find("uint8") != std::string::npos);
  CHECK(reason({}).empty());
}
