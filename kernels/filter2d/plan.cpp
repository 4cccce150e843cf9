#include <cstdint>
#include <initializer_list>

#include "kernels/common/int_math.h"
#include "kernels/filter2d/filter2d.h"
#include "kernels/filter2d/policy.h"
#include "kernels/pipeline/automatic_plan.h"

namespace sluice {
namespace {

// Threads side by side. Tiles that are nearly square have the least halo, so 16 (128 outputs by 32 rows) is tried first,
// and then what is nearest to it; another wins only by fewer tiles, as for images that are small or narrow.
int choose_lanes(long long vectors, long long height, int patch_rows) {
  int best = 0;
  long long fewest = 0;
  for (int lanes : {16, 32, 8, 64, 4, 128, 2, 1}) {
    const long long tiles = ceil_div<long long>(vectors, lanes) *
                            ceil_div<long long>(height, static_cast<long long>(kFilter2dThreads / lanes) * patch_rows);
    if (best == 0 || tiles < fewest) {
      best = lanes;
      fewest = tiles;
    }
  }
  return best;
}

// Of the taps in shared memory: rows of whole chunks; separable: one such row, then the column.
long long tap_bytes(const Filter2dProblem& problem) {
  const long long row =
      static_cast<long long>(filter2d_chunks(problem.kernel_width, problem.dtype)) * word_elements(problem.dtype);
  const long long taps = problem.separable ? row + problem.kernel_height : row * problem.kernel_height;
  return round_up<long long>(taps * (problem.dtype == DType::float64 ? 8 : 4), 16);
}

// There are strips, and 32-bit numbers do for their places, whatever their rows.
bool fits_strips(const Filter2dProblem& problem) {
  constexpr long long kMost = 1LL << 30;
  const long long planes = problem.batch * problem.channels, words = problem.output_width / word_elements(problem.dtype);
  if (planes < 1 || words < 1 || problem.output_height < 1) return false;
  if (planes >= kMost || words >= kMost / 16 || problem.output_height >= kMost) return false;  // a word is 16 bytes
  if (words * problem.output_height >= kMost) return false;
  return planes * ceil_div<long long>(words * problem.output_height, kFilter2dThreads) < kMost;
}

Filter2dForm form_of(const Filter2dProblem& problem, Schedule schedule, bool linked) {
  if (schedule != Schedule::direct) return Filter2dForm::staged;
  if (problem.separable) return Filter2dForm::separable;
  // The squares' own kernels have no `pre`, and interpret no tensors.
  const bool has_own = is_small_square(problem.kernel_height, problem.kernel_width) && !problem.has_pre;
  if (!has_own || (problem.has_tensors && !linked)) return Filter2dForm::dense;
  // Theirs for aligned rows interpret nothing.
  const bool interprets = problem.has_post && !linked;
  const bool aligned = problem.aligned && !interprets && problem.dtype != DType::float64 && fits_strips(problem);
  if (problem.kernel_height == 3) return aligned ? Filter2dForm::aligned3 : Filter2dForm::square3;
  return aligned ? Filter2dForm::aligned5 : Filter2dForm::square5;
}

const char* direct_reason(const ScheduleRequest& request, Filter2dForm form) {
  if (!request.automatic) {
    return is_aligned_form(form) ? "forced: words of aligned rows through registers, halos through the L1 cache"
                                 : "forced: patches through registers, halos through the L1 cache";
  }
  if (is_aligned_form(form)) return "auto: words of aligned rows through registers; halos come from the L1 cache";
  return form == Filter2dForm::separable ? "auto: patches through registers, each row filtered once for all rows of a patch"
                                         : "auto: patches through registers; what neighbours share comes from the L1 cache";
}

// Blocks that the strips of a plane take.
long long blocks_of_plane(long long across, long long down) { return ceil_div<long long>(across * down, kFilter2dThreads); }

// Rows of a strip of aligned5. On 64 frames of 1080 x 1920, 36 were the fastest in half types, and 36 to 90 all alike in
// float32; another number wins only where the multiprocessor with the most blocks has clearly less to do, as with few or low
// images. What a start costs is reckoned, not measured.
int rows_of_strip(const Filter2dProblem& problem, long long across, const DeviceProperties& device) {
  constexpr int kOverhead = 8;   // rows that a strip's start costs: its halo's 4, and the latency of its first loads
  constexpr int kFewBlocks = 3;  // of a multiprocessor, that take no longer than one
  int best = 0;
  long long least = 0;
  for (int most : {size_of(problem.dtype) == 2 ? 36 : 72, 60, 96, 48, 36, 24, 16, 8, 4}) {
    const long long down = ceil_div<long long>(problem.output_height, most);
    const long long rows = ceil_div<long long>(problem.output_height, down);  // the strips of a column are alike
    const long long blocks = problem.batch * problem.channels * blocks_of_plane(across, down);
    const long long cost =
        max_of<long long>(kFewBlocks, ceil_div<long long>(blocks, device.multiprocessors)) * (rows + kOverhead);
    if (best == 0 || cost * 10 < least * 9) {
      best = static_cast<int>(rows);
      least = cost;
    }
  }
  return best;
}

void set_aligned(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  plan.depth = 1;
  plan.across = problem.output_width / word_elements(problem.dtype);
  plan.rows = plan.form == Filter2dForm::aligned3 ? aligned_rows(problem.dtype) : rows_of_strip(problem, plan.across, device);
  plan.down = ceil_div<long long>(problem.output_height, plan.rows);
  plan.blocks = blocks_of_plane(plan.across, plan.down);
  // As few whole warps as that many blocks need: a small plane leaves most of a whole block idle.
  plan.threads = static_cast<int>(round_up<long long>(ceil_div<long long>(plan.across * plan.down, plan.blocks), 32));
  plan.tile = plan.threads * plan.rows * word_elements(problem.dtype);
  plan.grid = problem.batch * problem.channels * plan.blocks;
}

void set_direct(Filter2dPlan& plan, const DeviceProperties& device, long long tiles, long long bytes) {
  plan.depth = 1;
  plan.grid = tiles;
  if (bytes > most_dynamic_shared_memory(device)) {
    return refuse(plan, "the kernel's taps must fit into the shared memory of a block");
  }
  plan.shared_memory = plan.tap_bytes = static_cast<int>(bytes);
}

void set_ring(Filter2dPlan& plan, const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
              long long tiles, long long bytes) {
  // The words of the last lane's last chunk, and one more that is shifted into it (patch.cuh).
  const long long pitch = static_cast<long long>(plan.lanes) * filter2d_patch_words(problem.dtype) +
                          filter2d_chunks(problem.kernel_width, problem.dtype) + 1;
  const long long rows = static_cast<long long>(kFilter2dThreads / plan.lanes) * kDenseRows + problem.kernel_height - 1;
  const long long stage_bytes = rows * pitch * 16 + bytes;
  const int producers = producer_threads(plan.schedule);
  RingShape ring{0, 0};
  if (stage_bytes <= most_dynamic_shared_memory(device)) {
    ring = shape_ring(static_cast<int>(stage_bytes), producers == 0 ? kFilter2dResidentBlocks : kFilter2dResidentBlocks - 1,
                      request, device);
  }
  if (const char* const refused = refusal(plan.schedule, device)) return refuse(plan, refused);
  if (ring.depth == 0) {
    return refuse(plan, "the ring's stages (a tile, its halo and its taps) must fit into the shared memory of a block");
  }
  plan.threads += producers;
  plan.depth = ring.depth;
  plan.pitch_words = static_cast<int>(pitch);
  plan.stage_words = static_cast<int>(rows * pitch);
  plan.tap_bytes = static_cast<int>(bytes);
  plan.shared_memory = ring.depth * static_cast<int>(stage_bytes);
  plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
  plan.reason = request.automatic
                    ? "auto: a ring, because many taps read each row of the image, and rows in shared memory are nearer"
                    : ring_reason(request);
}

}  // namespace

Filter2dProblem problem_of(const Filter2dParams& params) {
  const int width = word_elements(params.dtype);
  const bool alike = params.output_strides[3] == 1 && params.output_strides[2] % width == 0;
  const bool aligned = reinterpret_cast<std::uintptr_t>(params.output) % (width * size_of(params.output_dtype)) == 0 &&
                       params.output_strides[0] % width == 0 && params.output_strides[1] % width == 0;
  return {params.batch,
          params.channels,
          params.output_height,
          params.output_width,
          params.kernel_height,
          params.kernel_width,
          params.row_taps != nullptr,
          params.dtype,
          alike && !aligned,
          is_aligned(params),
          !params.pre.empty(),
          !params.post.empty(),
          params.post.operands > 0,
          params.image_strides[3] == 1 && params.image_strides[2] % width == 0};
}

bool is_aligned(const Filter2dParams& params) {
  const long long vector = word_elements(params.dtype);
  const auto starts_words = [&](const void* data, DType dtype, const long long* strides, long long height) {
    const long long alignment = min_of<long long>(16, vector * static_cast<long long>(size_of(dtype)));
    const long long step = alignment / static_cast<long long>(size_of(dtype));
    const auto fits = [&](int d, long long size) { return size == 1 || strides[d] % step == 0; };
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0 && strides[3] == 1 &&
           fits(0, params.batch) && fits(1, params.channels) && fits(2, height);
  };
  return params.row_taps == nullptr && params.kernel_width % 2 == 1 && params.left == params.kernel_width / 2 &&
         params.top >= 0 && params.top < params.kernel_height && params.output_width == params.width &&
         params.width % vector == 0 && starts_words(params.image, params.dtype, params.image_strides, params.height) &&
         starts_words(params.output, params.output_dtype, params.output_strides, params.output_height);
}

namespace {

Filter2dPlan plan_as(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                     bool linked) {
  Filter2dPlan plan;
  plan.schedule = request.schedule;
  plan.form = form_of(problem, plan.schedule, linked);
  plan.threads = kFilter2dThreads;
  plan.reason = direct_reason(request, plan.form);
  if (is_aligned_form(plan.form)) {
    set_aligned(plan, problem, device);
    return plan;
  }
  const int columns = filter2d_columns(problem.dtype), rows = filter2d_rows(problem.separable, plan.schedule == Schedule::direct);
  // Vectors begin at the output's words, so a shifted row may need one more than its length asks for.
  const int slack = problem.shifted ? word_elements(problem.dtype) - 1 : 0;
  const long long vectors = ceil_div<long long>(problem.output_width + slack, columns);
  plan.lanes = choose_lanes(vectors, problem.output_height, rows);
  plan.tile = kFilter2dThreads * columns * rows;
  plan.across = ceil_div<long long>(vectors, plan.lanes);
  plan.down = ceil_div<long long>(problem.output_height, static_cast<long long>(kFilter2dThreads / plan.lanes) * rows);
  const long long tiles = problem.batch * problem.channels * plan.across * plan.down, bytes = tap_bytes(problem);
  if (plan.schedule == Schedule::direct) {
    set_direct(plan, device, tiles, bytes);
  } else {
    set_ring(plan, problem, request, device, tiles, bytes);
  }
  return plan;
}

// The ring that is faster than `direct`, or `direct`. The numbers are those of one H200 (docs/measurements/schedules.md).
Schedule fastest(const Filter2dProblem& problem, const DeviceProperties& device, bool linked) {
  const bool interprets = (problem.has_pre || problem.has_post) && !linked;  // which rings do slowly
  const Filter2dForm form = form_of(problem, Schedule::direct, linked);
  if ((form != Filter2dForm::dense && form != Filter2dForm::separable) || interprets) return Schedule::direct;
  const auto plan_of = [&](Schedule schedule) { return plan_as(problem, {true, schedule, 0}, device, linked); };
  const bool half = size_of(problem.dtype) == 2;
  // Images whose rows lie apart differently cost a ring a copy a row.
  const int side = max_of(problem.kernel_height, problem.kernel_width);
  const int least = problem.separable ? (half ? 8 : 24) : (half ? 13 : 20);
  if (!problem.rows_alike && side < least) return Schedule::direct;
  const Filter2dPlan two_stage = plan_of(Schedule::two_stage);
  // Filtering a row once for eight rows of outputs, not four, is worth more than the ring where there are many taps.
  const bool one_wave = two_stage.grid == problem.batch * problem.channels * two_stage.across * two_stage.down;
  if (problem.separable && half && problem.rows_alike && side >= 20 && !one_wave) return Schedule::direct;
  // A second stage that costs resident blocks costs more than it gains.
  return two_stage.threads > 0 && two_stage.grid == plan_of(Schedule::single_stage).grid ? Schedule::two_stage
                                                                                         : Schedule::single_stage;
}

}  // namespace

Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                           bool linked) {
  const long long planes = min_of(problem.batch, problem.channels);
  if (min_of(planes, min_of(problem.output_height, problem.output_width)) < 1) {
    Filter2dPlan nothing;
    refuse(nothing, kNoElements);
    return nothing;
  }
  return automatic_plan(
      request, [&](const ScheduleRequest& chosen) { return plan_as(problem, chosen, device, linked); },
      [&] { return fastest(problem, device, linked); });
}

}  // namespace sluice
