#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/operators/conv1d/depthwise/row_cut.h"
#include "kernels/shared/common/architectures.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

constexpr long long kManyTiles = 1 << 20;

TEST(a_ring_has_enough_bytes_in_flight_and_fits) {
  for (int stage_bytes : {512, 4096, 8192, 65536, 200000}) {
    const RingShape ring = shape_ring(stage_bytes, 8, kManyTiles, forced(Schedule::sync), kH200);
    CHECK(ring.depth >= 1 && ring.depth <= kMaxDepth && ring.blocks >= 1);
    CHECK(ring.depth * stage_bytes <= most_dynamic_shared_memory(kH200));
  }
  CHECK(shape_ring(kH200.shared_memory_per_block, 8, kManyTiles, forced(Schedule::sync), kH200).depth == 0);
  CHECK(shape_ring(most_dynamic_shared_memory(kH200), 8, kManyTiles, forced(Schedule::sync), kH200).depth == 1);
  CHECK(shape_ring(300000, 8, kManyTiles, forced(Schedule::sync), kH200).depth == 0);
  CHECK(shape_ring(60000, 8, kManyTiles, forced(Schedule::sync, 4), kH200).depth == 0);
  CHECK(shape_ring(60000, 8, kManyTiles, forced(Schedule::sync, 3), kH200).depth == 3);
  CHECK(shape_ring(512, 8, kManyTiles, forced(Schedule::single_stage), kH200).depth == 1);
  CHECK(shape_ring(512, 8, kManyTiles, forced(Schedule::two_stage), kH200).depth == 2);
}

TEST(a_ring_is_no_deeper_than_a_block_has_tiles) {
  const int wave = 8 * kH200.multiprocessors;
  const auto depth_of = [](long long tiles, ScheduleRequest request) {
    return shape_ring(2048, 8, tiles, request, kH200).depth;
  };
  CHECK(depth_of(kManyTiles, forced(Schedule::sync)) == 4);
  for (int tiles_a_block = 1; tiles_a_block <= 6; ++tiles_a_block) {
    CHECK(depth_of(tiles_a_block * wave, forced(Schedule::sync)) == min_of(tiles_a_block, 4));
    CHECK(depth_of(tiles_a_block * wave + 1, forced(Schedule::sync)) == min_of(tiles_a_block + 1, 4));
  }
  CHECK(depth_of(1, forced(Schedule::sync, 5)) == 5);  // as requested
  CHECK(depth_of(1, forced(Schedule::two_stage)) == 2);
  // A shallower ring allows more blocks, each with fewer tiles: stages of 50 KB, 2 blocks per SM at a depth of 2, and 4
  // at a depth of 1.
  CHECK(shape_ring(50000, 4, 2 * kH200.multiprocessors, forced(Schedule::sync), kH200).depth == 1);
  CHECK(shape_ring(50000, 4, 2 * kH200.multiprocessors + 1, forced(Schedule::sync), kH200).depth == 2);
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
          Conv1dProblem problem = depthwise(8, 512, none, 4, dtype);
          problem.channels_last = last;
          CHECK(plan_conv1d(problem, request, kH200, true).threads == 0);
          problem.output_length = 2048, problem.batch = none;
          CHECK(plan_conv1d(problem, request, kH200, true).threads == 0);
        }
        for (int side : {3, 5, 7}) {
          Filter2dProblem problem = square(8, 3, none, 240, side, dtype);
          problem.aligned = true;
          CHECK(plan_filter2d(problem, request, kH200, true).threads == 0);
          problem.output_height = 100, problem.channels = none;
          CHECK(plan_filter2d(problem, request, kH200, true).threads == 0);
        }
        CHECK(plan_transform(flat(none, dtype), request, kH200, true).threads == 0);
      }
    }
  }
  const Filter2dProblem pixels = square(1LL << 31, 1, 1, 1, 7, DType::float32);
  CHECK(plan_filter2d(pixels, forced(Schedule::direct), kH200, true).threads == 0);
  CHECK(plan_filter2d(pixels, forced(Schedule::sync), kH200, true).threads > 0);
}

TEST(transform_tiles_cover_rows_that_start_anywhere) {
  TransformProblem problem = flat(8192, DType::bfloat16);
  const TransformPlan aligned = plan_transform(problem, ScheduleRequest{}, kH200, false);
  CHECK(aligned.schedule == Schedule::direct && aligned.grid == 4);
  problem.misalignment = 3;
  const TransformPlan shifted = plan_transform(problem, ScheduleRequest{}, kH200, false);
  CHECK(shifted.grid == 5 && shifted.problem.misalignment == 3 && aligned.problem.misalignment == 0);
  const Plan rows =
      plan_transform(contiguous_problem(100 * 7, 7, DType::float32), forced(Schedule::sync), kH200, false);
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
  CHECK(blocks(10, 8192, DType::bfloat16) == std::pair(8LL, 128));  // a vector a thread: rows are whole words
  CHECK(blocks(10, 4100, DType::bfloat16) == std::pair(3LL, 96));   // 513 vectors: rows start up to 4 elements into one
  CHECK(contiguous_problem(41000, 4100, DType::bfloat16).vectors_per_row() == 513);
  CHECK(contiguous_problem(41010, 4101, DType::bfloat16).vectors_per_row() == 514);
}

TEST(conv1d_goes_by_the_method_that_its_channels_ask_for) {
  Conv1dProblem problem = depthwise(8, 512, 2048, 4, DType::bfloat16);
  const auto method = [&](const ScheduleRequest& request = {}) {
    return choose_method(problem, request, kH200).method;
  };
  CHECK(method() == Conv1dMethod::depthwise && method(forced(Schedule::sync)) == Conv1dMethod::depthwise);
  problem.channels = 1024;  // a multiplier of 2
  CHECK(method() == Conv1dMethod::depthwise);
  problem.groups = 256;
  CHECK(method() == Conv1dMethod::aten && method(forced(Schedule::sync)) == Conv1dMethod::aten);
  const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
  CHECK(plan.which == Conv1dMethod::aten && plan.threads == 0 && std::string_view(plan.method) == "aten");
  CHECK(std::string_view(plan.reason) == choose_method(problem, ScheduleRequest{}, kH200).reason);
  problem.input_channels = problem.groups = 1;
  problem.channels = 7;
  CHECK(method() == Conv1dMethod::depthwise);
  problem.channels = 8;  // a filter bank, unless the schedule is given
  CHECK(method() == Conv1dMethod::dense && method(forced(Schedule::sync)) == Conv1dMethod::depthwise);
}

TEST(conv1d_picks_its_kernel_and_refuses_what_does_not_fit) {
  Conv1dProblem problem = depthwise(8, 512, 2048, 4, DType::bfloat16);
  problem.adjacent = false;
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).depthwise.which == DepthwiseKernel::plain_rows);
  problem.channels_last = true;
  const Conv1dPlan last = plan_conv1d(problem, forced(Schedule::direct), kH200, false);
  CHECK(last.depthwise.which == DepthwiseKernel::direct_channels && last.grid == 8 * 8 * 32);
  CHECK(last.depthwise.tiles_across == 8 && last.depthwise.tiles_along == 32);
  problem.taps = 10000;  // too many for a block of channels, not for a row
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).depthwise.which == DepthwiseKernel::direct_rows);
  problem.taps = 100000;
  const Conv1dPlan refused = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
  CHECK(refused.threads == 0 && refused.which == Conv1dMethod::aten);
  const Conv1dPlan ring = plan_conv1d(problem, forced(Schedule::multi_stage), kH200, false);
  CHECK(ring.threads == 0 && ring.which == Conv1dMethod::depthwise);
  problem.dilation = 2000000000;
  CHECK(plan_conv1d(problem, forced(Schedule::sync), kH200, false).threads == 0);
}

TEST(short_rows_with_many_taps_get_fewer_threads) {
  const Conv1dProblem problem = depthwise(8, 512, 1, 1000, DType::float32);
  const Conv1dPlan plan = plan_conv1d(problem, forced(Schedule::direct), kH200, false);
  CHECK(plan.threads == 32 && plan.tile == 32 * conv1d_row_outputs(DType::float32));
  CHECK(std::string_view(plan.reason).starts_with("forced: "));
}

TEST(threads_share_runs_of_rows_with_a_stride_or_a_dilation) {
  for (DType dtype : {DType::float16, DType::float32, DType::float64}) {
    const int outputs = conv1d_row_outputs(dtype);
    for (long long length : {1, 4, 16, 17, 100, 300, 512, 513, 5000, 100001}) {
      Conv1dProblem problem = depthwise(3, 5, length, 7, dtype);
      problem.dilation = 2;
      const DepthwisePlan whole = plan_conv1d(problem, ScheduleRequest{}, kH200, false).depthwise;
      const DirectPlan& plan = whole.as<DirectPlan>();
      CHECK(whole.which == DepthwiseKernel::direct_rows && plan.vectors_per_row % plan.lanes == 0);
      CHECK(plan.lanes <= 32 && plan.lanes <= ceil_div<long long>(length, outputs));
      CHECK(plan.lanes == 32 || plan.lanes * outputs >= length);
      const long long covered = plan.vectors_per_row * outputs;
      CHECK(covered >= length && (plan.lanes == 1 || covered - length < 1LL * plan.lanes * outputs));
    }
  }
}

TEST(few_taps_have_a_kernel_where_vectors_are_side_by_side) {
  Conv1dProblem problem = depthwise(8, 512, 2048, 4, DType::bfloat16);
  problem.has_post = problem.has_tensors = true;
  const auto kernel = [&](bool linked, const ScheduleRequest& request = {}) {
    return plan_conv1d(problem, request, kH200, linked).depthwise.which;
  };
  CHECK(kernel(true) == DepthwiseKernel::few_taps_rows);
  CHECK(kernel(false) == DepthwiseKernel::direct_rows);  // tensors in `post`
  problem.has_tensors = false;
  CHECK(kernel(true) == DepthwiseKernel::few_taps_rows);
  CHECK(kernel(false) == DepthwiseKernel::plain_rows);  // the other interprets nothing
  problem.has_post = false;
  CHECK(kernel(false) == DepthwiseKernel::few_taps_rows);
  problem.taps = 5;
  CHECK(kernel(false) == DepthwiseKernel::plain_rows);
  problem.taps = 9;
  CHECK(kernel(true) == DepthwiseKernel::window_rows);
  CHECK(kernel(true, forced(Schedule::direct)) == DepthwiseKernel::direct_rows);
  problem.taps = 4;
  CHECK(plan_conv1d(problem, ScheduleRequest{}, kH200, false).depthwise.as<WordsPlan>().equally_aligned);
  problem.aligned = problem.equally_aligned = false;
  CHECK(kernel(false) == DepthwiseKernel::few_taps_rows);
  CHECK(!plan_conv1d(problem, ScheduleRequest{}, kH200, false).depthwise.as<WordsPlan>().equally_aligned);
  problem.output_length = kLeastPlainLength - 1;  // threads of a short, unaligned row have few words
  CHECK(kernel(false) == DepthwiseKernel::window_rows);
  CHECK(kernel(false, forced(Schedule::direct)) == DepthwiseKernel::few_taps_rows);
  problem.output_length = 2048;
  problem.adjacent = false;
  CHECK(kernel(false) == DepthwiseKernel::plain_rows);
  problem.has_pre = true;
  CHECK(kernel(true) == DepthwiseKernel::window_rows);
  CHECK(kernel(false) == DepthwiseKernel::direct_rows);
  CHECK(kernel(true, forced(Schedule::sync)) == DepthwiseKernel::staged_rows);
}

TEST(rows_fill_the_warps_of_their_blocks) {
  const RowCut whole = cut_rows(12288, 2048, 4, kH200), one_more = cut_rows(12288, 2049, 4, kH200);
  CHECK(whole.tiles == 8 && whole.lanes == 64 && whole.rows == 1 && whole.words == 4);
  CHECK(one_more.tiles == 9 && one_more.lanes == 57 && one_more.rows == 1);  // not 65 threads in three warps
  CHECK(cut_rows(512, 257, 2, kH200).lanes == 65);                           // more would be too few blocks
  for (long long vectors = 1; vectors < 3000; ++vectors) {
    const RowCut cut = cut_rows(12288, vectors, 4, kH200);
    CHECK(cut.tiles * cut.lanes * cut.words >= vectors && cut.threads() <= kFewTapsThreads);
    CHECK(vectors < 256 || cut.filled(vectors) >= 700);
  }
}

TEST(few_taps_leave_few_threads_idle) {
  for (DType dtype : {DType::float32, DType::bfloat16}) {
    for (bool last : {false, true}) {
      for (long long length : {1, 7, 80, 300, 512, 2048, 2984, 131072}) {
        Conv1dProblem problem = depthwise(3, 512, length, 4, dtype);
        problem.channels_last = last;
        const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
        CHECK(is_of(plan.depthwise.which, DepthwiseFamily::few_taps) && takes_channels(plan.depthwise.which) == last);
        CHECK(plan.threads <= kFewTapsThreads && plan.threads % plan.depthwise.as<WordsPlan>().lanes == 0);
        const long long results = 3 * 512 * length, room = plan.grid * plan.tile;
        CHECK(room >= results && (length < 80 || room <= results + results / 2));
      }
    }
  }
}

TEST(windows_leave_few_threads_idle) {
  for (DType dtype : {DType::float32, DType::float16}) {
    for (bool pairs : {false, true}) {
      for (int taps : {5, 31, 100}) {
        for (long long channels : {2, 3, 14, 33, 37, 64, 1537}) {
          for (long long length : {80, 300, 1501, 4096, 131072}) {
            Conv1dProblem problem = depthwise(3, channels, length, taps, dtype);
            problem.channels_last = problem.one_span = true, problem.adjacent = false;
            problem.pairs = pairs && channels % 2 == 0;
            const Conv1dPlan last = plan_depthwise(problem, {}, kH200, true);
            const WindowsPlan& own = last.depthwise.as<WindowsPlan>();
            CHECK(last.depthwise.which ==
                  (own.width == 1 ? DepthwiseKernel::window_channels : DepthwiseKernel::window_channels_pairs));
            CHECK(last.threads <= kWindowThreads && last.threads % own.lanes == 0 && 2 * last.threads > kWindowThreads);
            // The threads of a position's channels are all busy, except in the last tile.
            const long long vectors = (channels + own.width - 1) / own.width, tiles = last.depthwise.tiles_across;
            CHECK(tiles * own.lanes - vectors < tiles && own.collects == (vectors <= kCollectedLanes));
            CHECK(last.grid * last.tile >= 3 * channels * length && last.shared_memory < 58000);
            problem.channels_last = false, problem.taps = taps > 8 ? taps : 9;
            const Conv1dPlan rows = plan_depthwise(problem, {}, kH200, true);
            CHECK(rows.depthwise.which == DepthwiseKernel::window_rows && rows.threads <= kWindowThreads);
            CHECK(rows.depthwise.as<WindowsPlan>().lanes % 2 == 0 &&
                  rows.depthwise.as<WindowsPlan>().stage_words % 2 == 0);
            const long long results = 3 * channels * length, room = rows.grid * rows.tile;
            CHECK(room >= results && (length < 300 || channels < 14 || room <= results + results / 2));
            CHECK(rows.shared_memory <= kH200.shared_memory_per_multiprocessor / kWindowRowBlocks);
          }
        }
      }
    }
  }
}

// The fields kernel, copy width, alignment and resident blocks.
TEST(a_plan_names_its_kernel_and_what_it_copies) {
  const auto is = [](const Plan& plan, std::string_view method, std::string_view kernel, int copy_width, int blocks) {
    CHECK(plan.method == method && plan.kernel == kernel && plan.copy_width == copy_width);
    CHECK(plan.alignment == std::min(copy_width, 16) && plan.resident_blocks == blocks && plan.workspace_bytes == 0);
  };
  Conv1dProblem rows = depthwise(8, 512, 2048, 4, DType::float16);
  is(plan_conv1d(rows, {}, kH200, false), "depthwise", "few_taps_rows", 16, 8);
  is(plan_conv1d(rows, {}, kH200, true), "depthwise", "few_taps_rows", 16, 8);
  is(plan_conv1d(rows, forced(Schedule::sync), kH200, false), "depthwise", "staged_rows", 16, 4);
  // 128 threads of 16 results and the halo, in words.
  is(plan_conv1d(rows, forced(Schedule::bulk), kH200, false), "depthwise", "staged_rows", (257 + 2) * 16, 4);
  is(plan_conv1d(rows, forced(Schedule::producer_consumer), kH200, false), "depthwise", "staged_rows", 16, 3);
  rows.taps = 5;
  is(plan_conv1d(rows, {}, kH200, false), "depthwise", "plain_rows", 16, 6);
  is(plan_conv1d(rows, {}, kH200, true), "depthwise", "plain_rows", 16, 0);
  rows.dilation = 2;
  is(plan_conv1d(rows, {}, kH200, false), "depthwise", "direct_rows", 2, 5);
  rows.has_post = true;
  is(plan_conv1d(rows, {}, kH200, false), "depthwise", "direct_rows", 2, 4);

  Conv1dProblem channels = depthwise(8, 512, 2048, 4, DType::bfloat16);
  channels.channels_last = channels.whole_words = true;
  is(plan_conv1d(channels, {}, kH200, false), "depthwise", "few_taps_channels", 8, 11);
  channels.dtype = DType::float32;
  is(plan_conv1d(channels, {}, kH200, false), "depthwise", "few_taps_channels", 16, 10);
  channels.dilation = 3;
  is(plan_conv1d(channels, {}, kH200, false), "depthwise", "gated_channels", 16, kGatedBlocks);
  channels.dilation = 1, channels.taps = 7;
  is(plan_conv1d(channels, {}, kH200, false), "depthwise", "eight_taps_channels", 16, 6);
  channels.adjacent = false;
  is(plan_conv1d(channels, forced(Schedule::direct), kH200, false), "depthwise", "direct_channels", 16, 4);
  is(plan_conv1d(channels, forced(Schedule::bulk), kH200, false), "depthwise", "staged_channels", kChannelVectors * 16,
     4);
  channels.whole_words = false;
  is(plan_conv1d(channels, forced(Schedule::bulk), kH200, false), "depthwise", "staged_channels", 4, 4);
  channels.taps = 400;  // 50 KiB of them per block
  is(plan_conv1d(channels, forced(Schedule::direct), kH200, false), "depthwise", "direct_channels", 4, 4);
  channels.taps = 700;
  is(plan_conv1d(channels, forced(Schedule::direct), kH200, false), "depthwise", "direct_channels", 4, 2);

  Filter2dProblem image = square(8, 3, 100, 240, 3, DType::float16);
  is(plan_filter2d(image, {}, kH200, false), "stencil", "columns3", 2, 4);
  image.aligned = true;
  is(plan_filter2d(image, {}, kH200, false), "stencil", "aligned3", 16, 5);
  is(plan_filter2d(image, {}, kH200, true), "stencil", "aligned3", 16, 0);
  image.casts = true;
  is(plan_filter2d(image, {}, kH200, false), "stencil", "aligned3", 16, 4);
  image.separable = true;
  is(plan_filter2d(image, forced(Schedule::direct), kH200, false), "stencil", "separable", 16, 3);
  image.column_stride = 2, image.rows_equally_aligned = false;
  is(plan_filter2d(image, forced(Schedule::bulk), kH200, false), "stencil", "staged", 2, 4);

  is(plan_transform(flat(1 << 20, DType::float16), {}, kH200, false), "transform", "direct_flat", 16, 8);
  is(plan_transform(flat(1 << 20, DType::float16), {}, kH200, true), "transform", "direct_flat", 16, 0);
  is(plan_transform(flat(1 << 20, DType::float16), forced(Schedule::sync), kH200, true), "transform", "staged_flat", 16,
     6);
  is(plan_transform(flat(1 << 20, DType::float16), forced(Schedule::bulk), kH200, false), "transform", "staged_strided",
     257 * 16, 6);
}

TEST(a_policy_has_a_row_for_every_device) {
  struct Row {
    int compute_capability, value;
  };
  constexpr Row rows[] = {{80, 1}, {90, 2}, {100, 3}};
  const auto value = [&](int capability) {
    DeviceProperties device = kH200;
    device.compute_capability = capability;
    return policy_of(device, rows).value;
  };
  CHECK(value(75) == 1 && value(80) == 1 && value(89) == 1 && value(90) == 2 && value(103) == 3 && value(120) == 3);
}

TEST(auto_takes_the_ring_that_was_measured_to_be_faster) {
  // Doubles, which windows in registers do not take.
  Conv1dProblem problem = depthwise(8, 1024, 4096, 4, DType::float64);
  problem.whole_words = problem.has_post = true;
  const auto schedule = [&](int taps, bool linked = true) {
    problem.taps = taps;
    const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, linked);
    CHECK(plan.threads > 0 && std::string_view(plan.reason).starts_with("auto: "));
    return plan.schedule;
  };
  CHECK(schedule(2) == Schedule::direct && schedule(8) == Schedule::direct);
  CHECK(schedule(31) == Schedule::producer_consumer && schedule(31, false) == Schedule::direct);
  problem.batch = 1;
  problem.channels = problem.input_channels = problem.groups = problem.output_length = 512;
  CHECK(schedule(2) == Schedule::direct && schedule(15) == Schedule::thread_scope);
  problem.channels_last = true;
  CHECK(schedule(4) == Schedule::two_stage);
  problem.batch = 64;
  CHECK(schedule(7) == Schedule::two_stage && schedule(31) == Schedule::single_stage);
  CHECK(schedule(4000) == Schedule::direct);  // no ring fits that many
  problem.dtype = DType::bfloat16;
  CHECK(schedule(7) == Schedule::direct && schedule(7, false) == Schedule::direct);
  problem.has_pre = true;
  CHECK(schedule(7) == Schedule::two_stage && schedule(31) == Schedule::single_stage);

  Filter2dProblem image = square(32, 1, 1080, 1920, 7, DType::float64);
  const auto stencil = [&](int side, bool linked = true) {
    image.kernel_height = image.kernel_width = side;
    return plan_filter2d(image, ScheduleRequest{}, kH200, linked).schedule;
  };
  CHECK(stencil(3) == Schedule::direct && stencil(11) == Schedule::two_stage && stencil(31) == Schedule::single_stage);
  image.rows_equally_aligned = false;
  CHECK(stencil(11) == Schedule::direct && stencil(21) != Schedule::direct);
  image.has_post = true;
  CHECK(stencil(21, false) == Schedule::direct);
}
