#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/depthwise/policy.h"
#include "kernels/pipeline/automatic_plan.h"

#include <cstdint>

namespace sluice {
namespace {

constexpr long long kLargest = 1LL << 40;       // of any product below, so that none overflows
constexpr long long kLongestDense = 1LL << 30;  // positions and rows that few_taps counts in 32 bits
constexpr long long kBusyThreads = 256;         // of a multiprocessor; with fewer than that it waits
constexpr long long kLongSequence = 2048;       // from here on few_taps takes all the positions that a thread has registers for

// Inputs that `outputs` consecutive results reach over.
long long reach(const Conv1dProblem& problem, long long outputs) {
  const long long span = (outputs - 1) * problem.stride + (problem.taps - 1LL) * problem.dilation + 1;
  return min_of(span, kLargest);
}

const char* direct_reason(const ScheduleRequest& request, bool channels_last) {
  if (!request.automatic) return "forced: vectors through registers, halos through the L1 cache";
  return channels_last ? "auto: vectors of channels through registers; neighbouring positions meet in the L1 cache"
                       : "auto: vectors of positions through registers; a window's halo comes from the L1 cache";
}

const char* auto_ring_reason(const Conv1dPlan& plan) {
  if (plan.layout == Conv1dLayout::channels_last)
    return "auto: a ring, because each tap uses every input again, and shared memory is nearer than the L1 cache's misses";
  return plan.schedule == Schedule::thread_scope
             ? "auto: a ring, whose copies keep more bytes in flight where there are few tiles"
             : "auto: a ring, whose own warp fetches while the others sum many taps";
}

// Where the block's taps do not fit, `plan.weight_bytes` stays 0.
void set_direct(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device, long long tiles,
                long long weight_rows) {
  plan.depth = 1;
  plan.tiles = plan.grid = tiles;
  const long long bytes = weight_rows * problem.taps * compute_bytes(problem.dtype);
  if (bytes > most_dynamic_shared_memory(device)) {
    plan.weight_bytes = 0;
    plan.reason = "the taps of a block's channels must fit into its shared memory";
    return;
  }
  plan.shared_memory = plan.weight_bytes = static_cast<int>(bytes);
}

void set_ring(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
              long long tiles, long long words, int weight_rows) {
  const long long weight_bytes =
      round_up<long long>(static_cast<long long>(weight_rows) * problem.taps * compute_bytes(problem.dtype), 16);
  const long long stage_bytes = words * 16 + weight_bytes;
  const int producers = producer_threads(plan.schedule);
  RingShape ring{0, 0};
  if (stage_bytes <= most_dynamic_shared_memory(device)) {
    ring = shape_ring(static_cast<int>(stage_bytes), producers == 0 ? kConv1dResidentBlocks : kConv1dResidentBlocks - 1, request,
                      device);
  }
  if (const char* const refused = refusal(plan.schedule, device)) return refuse(plan, refused);
  if (ring.depth == 0) {
    return refuse(plan, "the ring's stages (a tile, its halo and its taps) must fit into the shared memory of a block");
  }
  plan.threads += producers;
  plan.tiles = tiles;
  plan.depth = ring.depth;
  plan.stage_words = static_cast<int>(words);
  plan.weight_bytes = static_cast<int>(weight_bytes);
  plan.shared_memory = ring.depth * static_cast<int>(stage_bytes);
  plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
  plan.reason = request.automatic ? auto_ring_reason(plan) : ring_reason(request);
}

// Whether the kernel would go through a chain stage by stage, which few_taps does not, and rings do slowly.
bool interprets(const Conv1dProblem& problem, bool linked) { return (problem.pre || problem.post) && !linked; }

// Which of `direct`'s kernels can run.
Conv1dForm form_of(const Conv1dProblem& problem, bool linked) {
  const bool simple = problem.stride == 1 && problem.dilation == 1 && !problem.pre && (linked || !problem.post_operands);
  if (!simple) return Conv1dForm::general;
  const bool few_taps = problem.taps <= kFewTaps && problem.dense && problem.dtype != DType::float64;
  if (few_taps && !interprets(problem, linked)) return Conv1dForm::few_taps;
  const bool in_registers = !problem.channels_last && problem.taps <= word_elements(problem.dtype);
  return in_registers ? Conv1dForm::plain : Conv1dForm::general;
}

const char* few_taps_reason(const ScheduleRequest& request) {
  return request.automatic
             ? "auto: a few taps cost less than the copy that they ride on, and many loads in flight a thread need no ring"
             : "forced: vectors through registers, all loads of a thread in flight at once";
}

// Few taps, positions along the vector. Threads side by side cut a row evenly; where that is few of them, a block takes
// several rows.
void plan_few_taps_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
                        const DeviceProperties& device) {
  const int width = word_elements(problem.dtype), most = few_taps_words(problem.dtype);
  const long long rows = problem.batch * problem.channels;
  plan.vectors = ceil_div<long long>(problem.output_length + (problem.aligned ? 0 : width - 1), width);
  // Half the words a thread where the row is so short that the last lanes would have nothing to do.
  plan.groups = plan.vectors < 8 * most && plan.vectors % most != 0 ? most / 2 : most;
  // And fewer where that leaves multiprocessors without work.
  while (plan.groups > 1 && rows * plan.vectors < plan.groups * kBusyThreads * device.multiprocessors) plan.groups /= 2;
  const long long tile = plan.groups * kFewTapsRowThreads;
  plan.across = max_of<long long>(1, (plan.vectors + tile / 2) / tile);
  // At least four, so that only a thread's first word may lie before its row.
  plan.lanes = static_cast<int>(max_of<long long>(4, ceil_div<long long>(plan.vectors, plan.across * plan.groups)));
  const int rows_per_block = max_of(1, kFewTapsRowThreads / plan.lanes);
  plan.threads = plan.lanes * rows_per_block;
  plan.tile = plan.threads * plan.groups * width;
  plan.tiles = plan.grid = plan.across * ceil_div<long long>(rows, rows_per_block);
  plan.reason = few_taps_reason(request);
}

// Few taps, channels along the vector.
void plan_few_taps_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request) {
  const long long vectors = ceil_div<long long>(problem.channels, kFewTapsChannels);
  plan.threads = kFewTapsChannelThreads;
  plan.lanes = 32;
  while (plan.lanes > 1 && plan.lanes / 2 >= vectors) plan.lanes /= 2;
  const int most = few_taps_positions(problem.dtype);
  plan.groups = problem.output_length >= kLongSequence ? most : most / 2;
  plan.across = ceil_div<long long>(vectors, plan.lanes);
  plan.along = ceil_div<long long>(problem.output_length, plan.threads / plan.lanes * plan.groups);
  plan.tile = plan.threads * kFewTapsChannels * plan.groups;
  plan.tiles = plan.grid = problem.batch * plan.across * plan.along;
  plan.reason = few_taps_reason(request);
}

// Vectors of channels by positions: the plan for a channels-last result.
void plan_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
                   const DeviceProperties& device) {
  plan.layout = Conv1dLayout::channels_last;
  if (plan.form == Conv1dForm::few_taps) return plan_few_taps_channels(plan, problem, request);
  const int channels = kChannelVectors * word_elements(problem.dtype);
  plan.threads = kConv1dThreads;
  plan.tile = channels * kTilePositions;
  plan.reason = direct_reason(request, true);
  plan.across = ceil_div<long long>(problem.channels, channels);
  plan.along = ceil_div<long long>(problem.output_length, kTilePositions);
  const long long tiles = problem.batch * plan.across * plan.along;
  if (plan.schedule == Schedule::direct) {
    set_direct(plan, problem, device, tiles, channels);
    if (plan.weight_bytes == 0) plan.threads = 0;
  } else {
    set_ring(plan, problem, request, device, tiles, reach(problem, kTilePositions) * kChannelVectors, channels);
  }
}

// Vectors of positions along a row: any strides.
void plan_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device) {
  plan.layout = Conv1dLayout::channels_first;
  if (plan.form == Conv1dForm::few_taps) return plan_few_taps_rows(plan, problem, request, device);
  const int width = word_elements(problem.dtype), outputs = conv1d_row_outputs(problem.dtype);
  // A row's vectors follow its output's alignment, so it may need one more than its length asks for.
  plan.vectors = ceil_div<long long>(problem.output_length + (problem.aligned ? 0 : width - 1), outputs);
  plan.threads = kConv1dThreads;
  plan.tile = kConv1dThreads * outputs;
  plan.reason = direct_reason(request, false);
  const long long rows = problem.batch * problem.channels;
  if (plan.schedule == Schedule::direct) {
    // Short rows with many taps: fewer threads, so that a block's rows are few enough for their taps to fit.
    for (plan.threads = 2 * kConv1dThreads; plan.threads > 32 && plan.weight_bytes == 0;) {
      plan.threads /= 2;
      const long long rows_per_block = min_of<long long>(rows, (plan.threads - 2) / plan.vectors + 2);
      set_direct(plan, problem, device, ceil_div<long long>(rows * plan.vectors, plan.threads), rows_per_block);
    }
    plan.tile = plan.threads * outputs;
    if (plan.weight_bytes == 0) plan.threads = 0;
  } else {
    const long long words = ceil_div<long long>(reach(problem, plan.tile), width) + 2;
    set_ring(plan, problem, request, device, rows * ceil_div<long long>(plan.vectors, kConv1dThreads), words, 1);
  }
}

bool is_word_aligned(const void* data, DType dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(word_elements(dtype) * size_of(dtype)) == 0;
}

// Whether four channels of a position are a vector, of the input and of the output.
bool has_quads(const Conv1dParams& params) {
  const auto of = [](const void* data, DType dtype, const long long* strides) {
    return reinterpret_cast<std::uintptr_t>(data) % (kFewTapsChannels * size_of(dtype)) == 0 &&
           strides[0] % kFewTapsChannels == 0 && strides[1] == 1 && strides[2] % kFewTapsChannels == 0;
  };
  return params.channels % kFewTapsChannels == 0 && of(params.input, params.input_dtype, params.input_strides) &&
         of(params.output, params.output_dtype, params.output_strides);
}

// Whether each row of the output lies against 16-byte words of the input's dtype as its row of the input does.
bool lies_alike(const Conv1dParams& params) {
  const long long width = word_elements(params.input_dtype);
  const auto place = [](const void* data, DType dtype) {
    return static_cast<long long>(reinterpret_cast<std::uintptr_t>(data) / size_of(dtype));
  };
  const long long apart = place(params.input, params.input_dtype) - place(params.output, params.output_dtype);
  const bool rows = params.multiplier == 1 ? (params.input_strides[1] - params.output_strides[1]) % width == 0
                                           : params.input_strides[1] % width == 0 && params.output_strides[1] % width == 0;
  return rows && apart % width == 0 && (params.input_strides[0] - params.output_strides[0]) % width == 0 &&
         params.input_strides[2] == 1 && params.output_strides[2] == 1;
}

}  // namespace

Conv1dProblem problem_of(const Conv1dParams& params) {
  // The channels-last kernel writes vectors of channels and gives every output channel an input channel of
  // its own; anything else goes by rows, whatever its strides.
  const bool channels_last = params.output_strides[1] == 1 && params.channels > 1 && params.multiplier == 1;
  const int width = word_elements(params.input_dtype);
  const bool aligned = reinterpret_cast<std::uintptr_t>(params.output) % (width * size_of(params.output_dtype)) == 0 &&
                       params.output_strides[0] % width == 0 && params.output_strides[1] % width == 0;
  const bool whole_words = params.input_strides[1] == 1 && is_word_aligned(params.input, params.input_dtype) &&
                           params.input_strides[0] % width == 0 && params.input_strides[2] % width == 0;
  const bool short_enough = max_of(params.length, params.output_length) < kLongestDense && params.padding < kFewTaps &&
                            params.batch * params.channels < kLongestDense;
  return {.batch = params.batch,
          .channels = params.channels,
          .output_length = params.output_length,
          .multiplier = params.multiplier,
          .taps = params.taps,
          .stride = params.stride,
          .dilation = params.dilation,
          .dtype = params.input_dtype,
          .channels_last = channels_last,
          .aligned = aligned,
          .dense = short_enough && (channels_last ? has_quads(params) : lies_alike(params)),
          .whole_words = whole_words,
          .pre = !params.pre.empty(),
          .post = !params.post.empty(),
          .post_operands = params.post.operands > 0};
}

namespace {

Conv1dPlan plan_as(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device, bool linked) {
  Conv1dPlan plan;
  plan.schedule = request.schedule;
  if (plan.schedule == Schedule::direct) plan.form = form_of(problem, linked);
  if (problem.channels_last) {
    plan_channels(plan, problem, request, device);
    if (plan.threads > 0 || !request.automatic || plan.schedule != Schedule::direct) return plan;
  }
  plan_rows(plan, problem, request, device);
  return plan;
}

// The ring that is faster than `direct`, or `direct`. The numbers are those of one H200 (docs/measurements/schedules.md),
// of problems with stride and dilation 1; what was not measured runs `direct`.
Schedule fastest(const Conv1dProblem& problem, const DeviceProperties& device, bool linked) {
  if (problem.stride != 1 || problem.dilation != 1 || interprets(problem, linked)) return Schedule::direct;
  const Conv1dForm form = form_of(problem, linked);
  if (form == Conv1dForm::few_taps) return Schedule::direct;
  const bool half = size_of(problem.dtype) == 2;
  const auto ring_of = [&](Schedule schedule) { return plan_as(problem, {true, schedule, 0}, device, linked); };
  if (problem.channels_last) {
    const Conv1dPlan ring = ring_of(Schedule::two_stage);
    const bool one_wave = ring.grid == ring.tiles;
    const int many_taps = problem.whole_words ? 12 : half ? 48 : 96;
    return problem.taps >= many_taps && !one_wave ? Schedule::single_stage : Schedule::two_stage;
  }
  const Conv1dPlan ring = ring_of(Schedule::thread_scope);
  if (ring.threads > 0 && ring.grid == ring.tiles && problem.taps > kFewTaps) return Schedule::thread_scope;
  if (form == Conv1dForm::plain) return Schedule::direct;
  // A tile is a row's, so the last one of a row may be mostly empty.
  const long long width = conv1d_row_outputs(problem.dtype) * kConv1dThreads;
  const bool full_tiles = round_up(problem.output_length, width) * 7 <= problem.output_length * 8;
  const bool many_taps = half ? problem.taps >= 48 || (problem.taps >= 12 && full_tiles) : problem.taps >= 20;
  return many_taps ? Schedule::producer_consumer : Schedule::direct;
}

}  // namespace

Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                       bool linked) {
  if (min_of(min_of(problem.batch, problem.channels), problem.output_length) < 1) {
    Conv1dPlan nothing;
    refuse(nothing, kNoElements);
    return nothing;
  }
  return automatic_plan(
      request, [&](const ScheduleRequest& chosen) { return plan_as(problem, chosen, device, linked); },
      [&] { return fastest(problem, device, linked); });
}

}  // namespace sluice
