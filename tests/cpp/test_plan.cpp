#include <string_view>
#include <utility>

#include "kernels/common/architectures.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/depthwise/policy.h"
#include "kernels/filter2d/filter2d.h"
#include "kernels/filter2d/policy.h"
#include "kernels/transform/transform.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {
ScheduleRequest forced(Schedule schedule, int depth = 0) { return {false, schedule, depth}; }
}  // namespace

TEST(a_ring_has_enough_bytes_in_flight_and_fits) {
  for (int stage_bytes : {512, 4096, 8192, 65536, 200000}) {
    const RingShape ring = shape_ring(stage_bytes, 8, forced(Schedule::sync), kH200);
    CHECK(ring.depth >= 1 && ring.depth <= kMaxDepth && ring.blocks >= 1);
    CHECK(ring.depth * stage_bytes <= most_dynamic_shared_memory(kH200));
  }
  CHECK(shape_ring(kH200.shared_memory_per_block, 8, forced(Schedule::sync), kH200).depth == 0);
  CHECK(shape_ring(most_dynamic_shared_memory(kH200), 8, forced(Schedule::sync), kH200).depth == 1);
  CHECK(shape_ring(300000, 8, forced(Schedule::sync), kH200).depth == 0);
  CHECK(shape_ring(60000, 8, forced(Schedule::sync, 4), kH200).depth == 0);
  CHECK(shape_ring(60000, 8, forced(Schedule::sync, 3), kH200).depth == 3);
  CHECK(shape_ring(512, 8, forced(Schedule::single_stage), kH200).depth == 1);
  CHECK(shape_ring(512, 8, forced(Schedule::two_stage), kH200).depth == 2);
}

TEST(a_schedule_says_what_it_needs) {
  DeviceProperties ampere = kH200, blackwell = kH200;
  ampere.compute_capability = 80;
  blackwell.compute_capability = 100;
  const TransformProblem problem = contiguous_problem(1 << 20, 1 << 20, DType::float32);
  for (int s = 1; s < kSchedules; ++s) {
    const Schedule schedule = static_cast<Schedule>(s);
    const Plan here = plan_transform(problem, forced(schedule), kH200, true);
    CHECK(here.threads == kTransformThreads + producer_threads(schedule) && here.depth >= 1 && here.shared_memory > 0);
    CHECK((plan_transform(problem, forced(schedule), ampere, true).threads > 0) == (schedule != Schedule::bulk));
    const bool has_bulk_copies = code_capability(100) >= 90;
    CHECK((plan_transform(problem, forced(schedule), blackwell, true).threads > 0) ==
          (schedule != Schedule::bulk || has_bulk_copies));
  }
}

TEST(the_code_that_runs_on_a_device_is_known) {
  const auto code = [](int capability) { return code_architecture(capability, "80,90a", "80"); };
  for (int capability : {80, 86, 87, 89, 100, 120}) CHECK(code(capability) == "80");
  CHECK(code(90) == "90a" && code(75).empty());
  CHECK(code_architecture(100, "80,90a", "").empty() && code_architecture(89, "80,90a", "") == "80");
  const auto release = [](int capability) { return code_architecture(capability, "80,86,90,90a,100f,120", "120"); };
  CHECK(release(80) == "80" && release(86) == "86" && release(89) == "86" && release(90) == "90a");
  CHECK(release(100) == "100f" && release(103) == "100f" && release(120) == "120" && release(130) == "120");
  CHECK(code_architecture(100, "80,90", "90") == "90" && code_architecture(90, "80", "80") == "80");
  CHECK(code_architecture(100, "90a", "90a").empty() && code_architecture(103, "100f", "100f") == "100f");
  CHECK(code_architecture(120, "100f", "100f").empty());
}

TEST(a_plan_of_nothing_or_of_too_many_blocks_is_refused) {
  const ScheduleRequest automatic;
  for (const ScheduleRequest& request : {automatic, forced(Schedule::direct), forced(Schedule::sync)}) {
    for (long long none : {0LL, -3LL}) {
      for (DType dtype : {DType::float32, DType::bfloat16}) {
        for (bool last : {false, true}) {
          Conv1dProblem problem{8, 512, none, 1, 4, 1, 1, dtype, last, false, true, true, false, false, false};
          CHECK(plan_conv1d(problem, request, kH200, true).threads == 0);
          problem.output_length = 2048, problem.batch = none;
          CHECK(plan_conv1d(problem, request, kH200, true).threads == 0);
        }
        for (int side : {3, 5, 7}) {
          Filter2dProblem problem{8, 3, none, 240, side, side, false, dtype, false, true};
          CHECK(plan_filter2d(problem, request, kH200, true).threads == 0);
          problem.output_height = 100, problem.channels = none;
          CHECK(plan_filter2d(problem, request, kH200, true).threads == 0);
        }
        CHECK(plan_transform({none, none, dtype, 0, Walk::flat}, request, kH200, true).threads == 0);
      }
    }
  }
  const Filter2dProblem pixels{1LL << 31, 1, 1, 1, 7, 7, false, DType::float32, false};
  CHECK(plan_filter2d(pixels, forced(Schedule::direct), kH200, true).threads == 0);
  CHECK(plan_filter2d(pixels, forced(Schedule::sync), kH200, true).threads > 0);
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
  Conv1dProblem problem{8, 512, 2048, 1, 4, 1, 1, DType::bfloat16, false, false, false, false, false, false, false};
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).layout == Conv1dLayout::channels_first);
  problem.channels_last = true;
  const Conv1dPlan last = plan_conv1d(problem, forced(Schedule::direct), kH200, false);
  CHECK(last.layout == Conv1dLayout::channels_last && last.grid == 8 * 8 * 32);
  problem.taps = 4000;  // too many for a block of channels, not for a row
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).layout == Conv1dLayout::channels_first);
  problem.taps = 100000;
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).threads == 0);
  CHECK(plan_conv1d(problem, forced(Schedule::multi_stage), kH200, false).threads == 0);
  problem.dilation = 2000000000;
  CHECK(plan_conv1d(problem, forced(Schedule::sync), kH200, false).threads == 0);
}

TEST(few_taps_have_a_kernel_where_vectors_are_dense) {
  Conv1dProblem problem{8, 512, 2048, 1, 4, 1, 1, DType::bfloat16, false, true, true, true, false, true, true};
  const auto form = [&](bool linked) { return plan_conv1d(problem, ScheduleRequest{}, kH200, linked).form; };
  CHECK(form(true) == Conv1dForm::few_taps);
  CHECK(form(false) == Conv1dForm::general);  // tensors in the chain behind it
  problem.post_operands = false;
  CHECK(form(true) == Conv1dForm::few_taps);
  CHECK(form(false) == Conv1dForm::plain);  // it interprets nothing
  problem.post = false;
  CHECK(form(false) == Conv1dForm::few_taps);
  problem.taps = 5;
  CHECK(form(false) == Conv1dForm::plain);
  problem.taps = 9;
  CHECK(form(true) == Conv1dForm::general);
  problem.taps = 4;
  problem.dense = false;
  CHECK(form(false) == Conv1dForm::plain);
  problem.pre = true;
  CHECK(form(true) == Conv1dForm::general);
  CHECK(plan_conv1d(problem, forced(Schedule::sync), kH200, true).form == Conv1dForm::general);
}

TEST(few_taps_leave_few_threads_idle) {
  for (DType dtype : {DType::float32, DType::bfloat16}) {
    for (bool last : {false, true}) {
      for (long long length : {1, 7, 80, 300, 512, 2048, 2984, 131072}) {
        const Conv1dProblem problem{3, 512, length, 1, 4, 1, 1, dtype, last, true, true, true, false, false, false};
        const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
        CHECK(plan.form == Conv1dForm::few_taps && plan.threads <= kFewTapsThreads && plan.threads % plan.lanes == 0);
        const long long results = 3 * 512 * length, room = plan.grid * plan.tile;
        CHECK(room >= results && (length < 80 || room <= results + results / 2));
      }
    }
  }
}

TEST(auto_takes_the_ring_that_was_measured_to_be_faster) {
  Conv1dProblem problem{8, 1024, 4096, 1, 4, 1, 1, DType::bfloat16, false, true, true, true, false, true, false};
  const auto schedule = [&](int taps, bool linked = true) {
    problem.taps = taps;
    const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, linked);
    CHECK(plan.threads > 0 && std::string_view(plan.reason).starts_with("auto: "));
    return plan.schedule;
  };
  CHECK(schedule(4) == Schedule::direct && schedule(8) == Schedule::direct);
  CHECK(schedule(31) == Schedule::producer_consumer && schedule(31, false) == Schedule::direct);
  problem.output_length = 3001;  // half of the last tile of a row is empty
  CHECK(schedule(31) == Schedule::direct && schedule(64) == Schedule::producer_consumer);
  problem.batch = 1;
  problem.channels = problem.output_length = 512;
  CHECK(schedule(4) == Schedule::direct && schedule(15) == Schedule::thread_scope);
  problem.channels_last = true;
  CHECK(schedule(4) == Schedule::direct && schedule(64) == Schedule::two_stage);
  problem.batch = 64;
  CHECK(schedule(7) == Schedule::two_stage && schedule(31) == Schedule::single_stage);
  CHECK(schedule(4000) == Schedule::direct);  // no ring has room for so many

  Filter2dProblem image{32, 1, 1080, 1920, 7, 7, false, DType::float32, false};
  const auto stencil = [&](int side, bool linked = true) {
    image.kernel_height = image.kernel_width = side;
    return plan_filter2d(image, ScheduleRequest{}, kH200, linked).schedule;
  };
  CHECK(stencil(3) == Schedule::direct && stencil(7) == Schedule::two_stage && stencil(31) == Schedule::single_stage);
  image.rows_alike = false;
  CHECK(stencil(11) == Schedule::direct && stencil(21) != Schedule::direct);
  image.has_post = true;
  CHECK(stencil(21, false) == Schedule::direct);
}

TEST(filter2d_tiles_cover_the_result_with_few_threads_idle) {
  for (DType dtype : {DType::float32, DType::float16, DType::float64}) {
    for (bool separable : {false, true}) {
      for (long long width : {1, 7, 28, 200, 1920}) {
        for (long long height : {1, 5, 33, 1080}) {
          for (bool shifted : {false, true}) {
            const Filter2dProblem problem{3, 2, height, width, 5, 4, separable, dtype, shifted};
            for (const ScheduleRequest& request : {ScheduleRequest{}, forced(Schedule::sync)}) {
              const Filter2dPlan plan = plan_filter2d(problem, request, kH200, true);
              const int rows = filter2d_rows(separable, plan.schedule == Schedule::direct);
              const int slack = shifted ? word_elements(dtype) - 1 : 0;
              const long long across = plan.lanes * filter2d_columns(dtype), down = kFilter2dThreads / plan.lanes * rows;
              CHECK(plan.threads == kFilter2dThreads && plan.threads % plan.lanes == 0);
              CHECK((plan.across - 1) * across < width + slack && width + slack <= plan.across * across);
              CHECK((plan.down - 1) * down < height && height <= plan.down * down);
              if (plan.schedule == Schedule::direct) CHECK(plan.grid == 3 * 2 * plan.across * plan.down);
            }
          }
        }
      }
    }
  }
  const auto lanes = [](long long height, long long width) {
    return plan_filter2d({64, 1, height, width, 3, 3, false, DType::float32, false}, ScheduleRequest{}, kH200, true).lanes;
  };
  CHECK(lanes(1080, 1920) == 16);
  CHECK(lanes(100, 28) == 4);
  CHECK(lanes(4000, 2) == 1);
  CHECK(lanes(1, 100000) == 128);
}

TEST(filter2d_stages_hold_a_tile_with_its_halo_and_refuse_what_does_not_fit) {
  Filter2dProblem problem{64, 1, 1080, 1920, 3, 3, false, DType::float32, false};
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

TEST(filter2d_strips_cover_aligned_planes) {
  for (DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (int side : {3, 5}) {
      for (long long words : {1, 3, 30, 480}) {
        for (long long height : {1, 4, 71, 72, 73, 1080}) {
          for (long long batch : {1, 64, 5000}) {
            const int width = word_elements(dtype);
            const Filter2dProblem problem{batch, 3, height, words * width, side, side, false, dtype, false, true};
            const Filter2dPlan plan = plan_filter2d(problem, ScheduleRequest{}, kH200, false);
            CHECK(plan.form == (side == 3 ? Filter2dForm::aligned3 : Filter2dForm::aligned5));
            CHECK(plan.across == words && (plan.down - 1) * plan.rows < height && height <= plan.down * plan.rows);
            CHECK(plan.rows >= 1 && (side == 5 || plan.rows == aligned_rows(dtype)));
            CHECK(plan.threads % 32 == 0 && plan.threads <= kFilter2dThreads && plan.shared_memory == 0);
            const long long strips = plan.across * plan.down;
            CHECK((plan.blocks - 1) * plan.threads < strips && strips <= plan.blocks * plan.threads);
            CHECK(plan.grid == batch * 3 * plan.blocks && plan.tile == plan.threads * plan.rows * width);
          }
        }
      }
    }
  }
  const auto rows = [](long long batch, long long height, DType dtype) {
    return plan_filter2d({batch, 1, height, 1920, 5, 5, false, dtype, false, true}, ScheduleRequest{}, kH200, false).rows;
  };
  CHECK(rows(64, 1080, DType::float32) == 72 && rows(64, 1080, DType::float16) == 36);  // as measured
  CHECK(rows(1, 1080, DType::float16) <= 16);                                           // one image feeds all multiprocessors
  CHECK(rows(64, 100, DType::float16) == 34);                                           // strips of a column are alike
}

TEST(filter2d_picks_a_form_by_what_its_kernels_can) {
  const Filter2dProblem aligned{8, 3, 100, 240, 3, 3, false, DType::float16, false, true};
  const auto form = [](const Filter2dProblem& problem, bool linked = false,
                       const ScheduleRequest& request = forced(Schedule::direct)) {
    return plan_filter2d(problem, request, kH200, linked).form;
  };
  CHECK(form(aligned) == Filter2dForm::aligned3);
  CHECK(form(aligned, false, ScheduleRequest{}) == Filter2dForm::aligned3);
  CHECK(form(aligned, false, forced(Schedule::sync)) == Filter2dForm::staged);
  Filter2dProblem other = aligned;
  other.kernel_height = other.kernel_width = 5;
  CHECK(form(other) == Filter2dForm::aligned5);
  other.aligned = false;
  CHECK(form(other) == Filter2dForm::square5);
  other.kernel_width = 3;
  CHECK(form(other) == Filter2dForm::dense);
  other = aligned;
  other.aligned = false;
  CHECK(form(other) == Filter2dForm::square3);
  other = aligned;
  other.separable = true;
  CHECK(form(other) == Filter2dForm::separable);
  other = aligned;
  other.dtype = DType::float64;
  CHECK(form(other) == Filter2dForm::square3);
  other = aligned;
  other.has_pre = true;
  CHECK(form(other, true) == Filter2dForm::dense);
  other = aligned;
  other.has_post = true;
  CHECK(form(other, false) == Filter2dForm::square3 && form(other, true) == Filter2dForm::aligned3);
  other.has_tensors = true;
  CHECK(form(other, false) == Filter2dForm::dense && form(other, true) == Filter2dForm::aligned3);
  other = aligned;
  other.batch = 1LL << 30;
  CHECK(form(other) == Filter2dForm::square3);
}

TEST(filter2d_is_aligned_where_rows_are_whole_words) {
  alignas(16) char image[64], output[64];
  Filter2dParams whole{};
  whole.image = image;
  whole.output = output;
  whole.dtype = whole.output_dtype = DType::float16;
  whole.batch = 2, whole.channels = 3, whole.height = 50, whole.width = 240;
  whole.output_height = 50, whole.output_width = 240, whole.kernel_height = whole.kernel_width = 5, whole.top = whole.left = 2;
  const long long strides[4] = {3 * 50 * 240, 50 * 240, 240, 1};
  for (int d = 0; d < 4; ++d) whole.image_strides[d] = whole.output_strides[d] = strides[d];
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
  CHECK(!changed([&](auto& p) { p.image = image + 8; }));
  CHECK(!changed([&](auto& p) { p.output = output + 8; }));
  for (int d = 0; d < 4; ++d) {
    CHECK(!changed([d](auto& p) { p.image_strides[d] += 4; }));
    CHECK(!changed([d](auto& p) { p.output_strides[d] += 4; }));
    CHECK(changed([d](auto& p) { p.output_strides[d] += d == 3 ? 0 : 8; }));
  }
  CHECK(changed([](auto& p) { p.batch = 1, p.image_strides[0] = p.output_strides[0] = 1; }));
  CHECK(changed([](auto& p) { p.channels = 1, p.image_strides[1] = p.output_strides[1] = 7; }));
  CHECK(changed([](auto& p) { p.output_dtype = DType::float32; }));
  // Four elements of an output of halves are eight bytes.
  CHECK(changed([&](auto& p) { p.dtype = DType::float32, p.output = output + 8, p.output_strides[2] = 244; }));
  CHECK(!changed([&](auto& p) { p.dtype = DType::float32, p.output = output + 4; }));
}
