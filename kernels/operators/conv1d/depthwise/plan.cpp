#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/operators/conv1d/depthwise/reasons.h"
#include "kernels/operators/conv1d/depthwise/row_cut.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/automatic_plan.h"

namespace sluice {
namespace {

constexpr long long kLargest = 1LL << 40;  // the largest factor of any product below, so that none overflows

// The extent of `outputs` consecutive results in the input.
long long reach(const Conv1dProblem& problem, long long outputs) {
  const long long span = (outputs - 1) * problem.stride + (problem.taps - 1LL) * problem.dilation + 1;
  return min_of(span, kLargest);
}

bool steps_by_one(const Conv1dProblem& problem) { return problem.stride == 1 && problem.dilation == 1; }

// Whether the kernel would interpret a chain; the few taps' kernels cannot, and rings are slow at it.
bool interprets(const Conv1dProblem& problem, bool linked) { return (problem.has_pre || problem.has_post) && !linked; }

// Channels per thread of window_channels: two of a half type are 4 bytes, as one float is.
int window_width(const Conv1dProblem& problem) { return problem.pairs && size_of(problem.dtype) == 2 ? 2 : 1; }

// Threads across the channels, and the shared memory for their channels' taps.
long long window_channel_tiles(const Conv1dProblem& problem) {
  return ceil_div(ceil_div<long long>(problem.channels, window_width(problem)), 32LL);
}
int window_channel_lanes(const Conv1dProblem& problem) {
  const long long vectors = ceil_div<long long>(problem.channels, window_width(problem));
  return static_cast<int>(ceil_div(vectors, window_channel_tiles(problem)));
}
long long window_channel_tap_bytes(const Conv1dProblem& problem) {
  const int columns = (window_channel_lanes(problem) + 1) * window_width(problem);
  return round_up<long long>(1LL * problem.taps * columns * compute_bytes(problem.dtype), kWordBytes);
}

// Whether a kernel with windows in registers takes the problem; only if the schedule is automatic.
bool suits_windows(const Conv1dProblem& problem, const ScheduleRequest& request, bool linked) {
  if (!request.automatic || !steps_by_one(problem) || interprets(problem, linked) || problem.dtype == DType::float64) {
    return false;
  }
  if (problem.channels_last) return !problem.has_pre && window_channel_tap_bytes(problem) <= kMostWindowTapBytes;
  const bool is_short = size_of(problem.dtype) == 2 && problem.output_length < kLeastPlainLength;
  const bool is_plain = !problem.has_pre && problem.taps <= register_taps(problem.dtype) && !is_short;
  return !is_plain && problem.taps <= kMostWindowRowTaps;
}

// The few-tap kernel for a channels-last problem, or direct_channels.
DepthwiseKernel few_taps_channels(const Conv1dProblem& problem, bool linked) {
  constexpr long long kMostDilation = 1 << 20;  // positions are counted in 32 bits
  const bool fits = problem.adjacent && problem.stride == 1 && problem.dilation <= kMostDilation &&
                    problem.dtype != DType::float64 && !interprets(problem, linked);
  if (!fits || problem.taps > (problem.has_pre ? kFewTaps : kEightTaps)) return DepthwiseKernel::direct_channels;
  if (problem.taps > kFewTaps) return DepthwiseKernel::eight_taps_channels;
  return problem.has_pre || problem.has_tensors || problem.dilation > 1 ? DepthwiseKernel::gated_channels
                                                                        : DepthwiseKernel::few_taps_channels;
}

DepthwiseKernel kernel_of(const Conv1dProblem& problem, const ScheduleRequest& request, bool linked) {
  const Schedule schedule = request.schedule;
  if (schedule != Schedule::direct) {
    return problem.channels_last ? DepthwiseKernel::staged_channels : DepthwiseKernel::staged_rows;
  }
  const bool plain = steps_by_one(problem) && !problem.has_pre && (linked || !problem.has_tensors);
  const bool few_taps = plain && problem.taps <= kFewTaps && problem.adjacent && problem.dtype != DType::float64 &&
                        !interprets(problem, linked);
  const bool windows = suits_windows(problem, request, linked);
  if (problem.channels_last) {
    const DepthwiseKernel kernel = few_taps_channels(problem, linked);
    if (!windows || kernel != DepthwiseKernel::direct_channels) return kernel;
    return window_width(problem) == 1 ? DepthwiseKernel::window_channels : DepthwiseKernel::window_channels_pairs;
  }
  if (few_taps && (problem.equally_aligned || !windows)) return DepthwiseKernel::few_taps_rows;
  if (windows) return DepthwiseKernel::window_rows;
  return plain && problem.taps <= register_taps(problem.dtype) ? DepthwiseKernel::plain_rows
                                                               : DepthwiseKernel::direct_rows;
}

// Resident blocks per SM of a kernel without a ring, by the registers of its launch bounds; 0: these set none.
int register_blocks(DepthwiseKernel kernel, DType dtype, bool has_chain, bool linked) {
  switch (kernel) {
#define SLUICE_TRAITS(layout, family, blocks) blocks
#define SLUICE_KERNEL(name, file, module, dtypes, code, pre, post, bounds, traits, ...) \
  case DepthwiseKernel::name: return SLUICE_TRAITS traits;
#include "kernels/operators/conv1d/depthwise/kernels.def"
#undef SLUICE_TRAITS
  }
  return 0;
}

// Bytes of one load into registers: single elements if a stride or a dilation takes rows apart, or channels are not
// whole words.
int load_width(DepthwiseKernel kernel, const Conv1dProblem& problem) {
  const int element = static_cast<int>(size_of(problem.dtype));
  if (!takes_channels(kernel)) return steps_by_one(problem) ? kWordBytes : element;
  if (is_of(kernel, DepthwiseFamily::few_taps)) return kFewTapsChannels * element;
  if (is_of(kernel, DepthwiseFamily::windows)) return window_width(problem) * element;
  return problem.whole_words ? kWordBytes : element;
}

// Refuses the plan if the taps of `rows` rows exceed a block's shared memory.
void set_direct(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device, long long tiles,
                long long rows) {
  plan.grid = tiles;
  const long long bytes = rows * problem.taps * compute_bytes(problem.dtype);
  if (bytes > most_dynamic_shared_memory(device)) {
    return refuse(plan, "the taps of a block's channels must fit into its shared memory");
  }
  plan.shared_memory = static_cast<int>(bytes);
}

// A stage has rows of `row_words`, and the taps of `tap_rows` channels.
void set_ring(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
              const DeviceProperties& device, long long tiles, long long rows, long long row_words, int tap_rows) {
  const long long words = rows * row_words;
  const long long tap_bytes =
      round_up<long long>(static_cast<long long>(tap_rows) * problem.taps * compute_bytes(problem.dtype), kWordBytes);
  const long long stage_bytes = words * kWordBytes + tap_bytes;
  const int producers = producer_threads(plan.schedule);
  RingShape ring{0, 0};
  if (stage_bytes <= most_dynamic_shared_memory(device)) {
    ring = shape_ring(static_cast<int>(stage_bytes), producers == 0 ? kConv1dResidentBlocks : kConv1dResidentBlocks - 1,
                      tiles, request, device);
  }
  if (const char* const refused = refusal(plan.schedule, device)) return refuse(plan, refused);
  if (ring.depth == 0) {
    return refuse(plan, "the ring's stages (a tile, its halo and its taps) must fit into the shared memory of a block");
  }
  plan.threads += producers;
  plan.depth = ring.depth;
  plan.depthwise.own =
      StagedPlan{.tiles = tiles, .stage_words = static_cast<int>(words), .tap_bytes = static_cast<int>(tap_bytes)};
  plan.shared_memory = ring.depth * static_cast<int>(stage_bytes);
  plan.resident_blocks = ring.blocks;
  if (!takes_channels(plan.depthwise.which) || problem.whole_words) {
    plan.copy_width = ring_copy_width(plan.schedule, static_cast<int>(row_words * kWordBytes), device);
  }
  plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
  plan.reason = request.automatic ? auto_ring_reason(plan.schedule, plan.depthwise.which) : ring_reason(request);
}

// Vectors of a row that follow its output's alignment, so that it may need one more.
long long vectors_of_row(const Conv1dProblem& problem, int outputs) {
  const int slack = problem.aligned ? 0 : word_elements(problem.dtype) - 1;
  return ceil_div<long long>(problem.output_length + slack, outputs);
}

// `most`: words per thread.
void set_interleaved_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device, int most) {
  const int width = word_elements(problem.dtype);
  const long long rows = problem.batch * problem.channels, vectors = vectors_of_row(problem, width);
  const RowCut cut = cut_rows(rows, vectors, most, device);
  plan.depthwise.own =
      WordsPlan{.lanes = cut.lanes, .vectors_per_thread = cut.words, .equally_aligned = problem.equally_aligned};
  plan.depthwise.tiles_across = cut.tiles;
  plan.threads = cut.threads();
  plan.tile = plan.threads * cut.words * width;
  plan.grid = cut.blocks(rows);
}

// Threads across divide a row evenly, into an even number of shares, so that each starts at an output's word.
void set_window_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  constexpr long long kLeastLanes = 32;
  const long long rows = problem.batch * problem.channels;
  const long long vectors = vectors_of_row(problem, kWindowOutputs);
  const auto even_share = [](long long count, long long parts) { return round_up(ceil_div(count, parts), 2LL); };
  long long tiles = ceil_div<long long>(vectors, kWindowThreads), lanes = even_share(vectors, tiles);
  while (lanes > kLeastLanes && rows * tiles < 2LL * device.multiprocessors) {
    tiles *= 2;
    lanes = even_share(vectors, tiles);
  }
  // With more taps than outputs, more threads copy than sum.
  lanes = max_of(lanes, min_of(kLeastLanes, even_share(problem.taps, kWindowOutputs)));
  plan.depthwise.tiles_across = ceil_div(vectors, lanes);
  WindowsPlan own{.lanes = static_cast<int>(lanes)};
  // The bank offset between rows is that between threads; taps of rows are an odd number of words apart.
  const int quads = ceil_div(problem.taps, 4), outputs = own.lanes * kWindowOutputs / 4;
  own.stage_words = outputs + round_up(quads, 8);
  own.tap_bytes = (quads | 1) * kWordBytes;
  const int row_bytes = own.stage_words * kWordBytes + own.tap_bytes;
  const int capacity = device.shared_memory_per_multiprocessor / kWindowRowBlocks - 1024;  // reserved per block
  const int rows_per_block = max_of(1, min_of(kWindowThreads / own.lanes, capacity / row_bytes));
  plan.threads = own.lanes * rows_per_block;
  plan.tile = plan.threads * kWindowOutputs;
  plan.shared_memory = row_bytes * rows_per_block;
  plan.grid = plan.depthwise.tiles_across * ceil_div<long long>(rows, rows_per_block);
  plan.depthwise.own = own;
}

void set_window_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  WindowsPlan own{.lanes = window_channel_lanes(problem), .width = window_width(problem)};
  DepthwisePlan& tiles = plan.depthwise;
  tiles.tiles_across = window_channel_tiles(problem);
  const int below = kWindowThreads / own.lanes;
  plan.threads = own.lanes * below;
  const auto set_iterations = [&](int iterations) {
    own.iterations = iterations;
    tiles.tiles_along =
        ceil_div<long long>(problem.output_length, static_cast<long long>(below) * kWindowPositions * iterations);
    plan.grid = problem.batch * tiles.tiles_across * tiles.tiles_along;
  };
  const long long enough =
      static_cast<long long>(kWindowWaves) * window_channel_blocks(own.width) * device.multiprocessors;
  for (int iterations = kWindowIterations; iterations > 0; iterations /= 2) {
    set_iterations(iterations);
    if (plan.grid >= enough) break;
  }
  plan.tile = plan.threads * own.width * kWindowPositions * own.iterations;
  own.tap_bytes = static_cast<int>(window_channel_tap_bytes(problem));
  // All channels have threads then, and the span may start within a word.
  own.collects = problem.one_span && tiles.tiles_across == 1 && own.lanes <= kCollectedLanes;
  const int results = own.collects ? plan.threads * own.width * kWindowPositions * kCollectedBytes + kWordBytes : 0;
  plan.shared_memory = own.tap_bytes + results;
  tiles.own = own;
}

void set_few_taps_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const DepthwisePolicy& policy = policy_of(device, kDepthwisePolicies);
  const long long vectors = ceil_div<long long>(problem.channels, kFewTapsChannels);
  DepthwisePlan& tiles = plan.depthwise;
  const bool is_plain = tiles.which == DepthwiseKernel::few_taps_channels;
  const int most = is_plain                                         ? few_taps_positions(problem.dtype)
                   : tiles.which == DepthwiseKernel::gated_channels ? gated_positions(problem.dtype)
                                                                    : eight_taps_positions(problem.dtype);
  const long long positions = ceil_div(problem.output_length, problem.dilation);
  plan.threads = kFewTapsChannelThreads;
  WordsPlan own{.lanes = 32};
  while (own.lanes > 1 && own.lanes / 2 >= vectors) own.lanes /= 2;
  own.vectors_per_thread = !is_plain || problem.output_length >= policy.long_sequence ? most : most / 2;
  tiles.own = own;
  tiles.tiles_across = ceil_div<long long>(vectors, own.lanes);
  tiles.tiles_along = ceil_div<long long>(positions, plan.threads / own.lanes * own.vectors_per_thread);
  plan.tile = plan.threads * kFewTapsChannels * own.vectors_per_thread;
  plan.grid = problem.batch * problem.dilation * tiles.tiles_across * tiles.tiles_along;
}

void set_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
                  const DeviceProperties& device) {
  const int channels = kChannelVectors * word_elements(problem.dtype);
  plan.threads = kConv1dThreads;
  plan.tile = channels * kTilePositions;
  plan.depthwise.tiles_across = ceil_div<long long>(problem.channels, channels);
  plan.depthwise.tiles_along = ceil_div<long long>(problem.output_length, kTilePositions);
  const long long tiles = problem.batch * plan.depthwise.tiles_across * plan.depthwise.tiles_along;
  if (plan.schedule == Schedule::direct) {
    set_direct(plan, problem, device, tiles, channels);
  } else {
    set_ring(plan, problem, request, device, tiles, reach(problem, kTilePositions), kChannelVectors, channels);
  }
}

// Threads that share contiguous outputs with a stride or a dilation, so that a warp's loads are adjacent.
int lanes_of_span(const Conv1dProblem& problem, int outputs) {
  constexpr long long kWarp = 32;
  return static_cast<int>(min_of(ceil_div<long long>(max_of(problem.output_length, 1LL), outputs), kWarp));
}

// Any strides.
void set_rows(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
              const DeviceProperties& device) {
  const int outputs = conv1d_row_outputs(problem.dtype);
  const long long rows = problem.batch * problem.channels;
  plan.threads = kConv1dThreads;
  plan.tile = kConv1dThreads * outputs;
  if (plan.schedule != Schedule::direct) {
    const long long words = ceil_div<long long>(reach(problem, plan.tile), word_elements(problem.dtype)) + 2;
    plan.depthwise.tiles_across = ceil_div<long long>(vectors_of_row(problem, outputs), kConv1dThreads);
    return set_ring(plan, problem, request, device, rows * plan.depthwise.tiles_across, 1, words, 1);
  }
  DirectPlan own;
  if (!steps_by_one(problem)) own.lanes = lanes_of_span(problem, outputs);
  own.vectors_per_row = own.lanes > 1
                            ? own.lanes * ceil_div<long long>(problem.output_length, 1LL * own.lanes * outputs)
                            : vectors_of_row(problem, outputs);
  plan.depthwise.own = own;
  // Short rows with many taps: fewer threads, so that the taps of a block's rows fit.
  const char* const reason = plan.reason;
  for (int threads = kConv1dThreads; threads >= 32; threads /= 2) {
    plan.threads = threads;
    plan.tile = threads * outputs;
    plan.reason = reason;
    const long long rows_per_block = min_of<long long>(rows, (threads - 2) / own.vectors_per_row + 2);
    set_direct(plan, problem, device, ceil_div<long long>(rows * own.vectors_per_row, threads), rows_per_block);
    if (plan.threads > 0) return;
  }
}

Conv1dPlan plan_as(const Conv1dProblem& problem, DepthwiseKernel kernel, const ScheduleRequest& request,
                   const DeviceProperties& device, bool linked) {
  Conv1dPlan plan;
  plan.method = "depthwise";
  plan.kernel = name_of(kernel);
  plan.which = Conv1dMethod::depthwise;
  plan.depthwise.which = kernel;
  plan.schedule = request.schedule;
  plan.reason = direct_reason(request, kernel);
  plan.copy_width = load_width(kernel, problem);
  const bool by_channels = takes_channels(kernel);
  switch (traits_of(kernel).family) {
    case DepthwiseFamily::plain: set_interleaved_rows(plan, problem, device, plain_row_words(problem.dtype)); break;
    case DepthwiseFamily::few_taps:
      by_channels ? set_few_taps_channels(plan, problem, device)
                  : set_interleaved_rows(plan, problem, device, few_taps_words(problem.dtype));
      break;
    case DepthwiseFamily::windows:
      by_channels ? set_window_channels(plan, problem, device) : set_window_rows(plan, problem, device);
      break;
    case DepthwiseFamily::direct:
    case DepthwiseFamily::staged:
      by_channels ? set_channels(plan, problem, request, device) : set_rows(plan, problem, request, device);
      break;
  }
  plan.alignment = min_of(plan.copy_width, kWordBytes);
  if (plan.schedule == Schedule::direct) {
    plan.resident_blocks = resident_blocks(
        plan, register_blocks(kernel, problem.dtype, problem.has_pre || problem.has_post, linked), device);
  }
  return plan;
}

Conv1dPlan plan_as(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                   bool linked) {
  const DepthwiseKernel kernel = kernel_of(problem, request, linked);
  const Conv1dPlan plan = plan_as(problem, kernel, request, device, linked);
  // A block of direct_rows holds the taps of fewer channels.
  const bool is_last_resort = plan.threads == 0 && kernel == DepthwiseKernel::direct_channels && request.automatic;
  return is_last_resort ? plan_as(problem, DepthwiseKernel::direct_rows, request, device, linked) : plan;
}

// The ring that is faster than `direct`, or `direct`, also for what was not measured. For problems that windows in
// registers do not take: doubles, channels with `pre`, longer filters.
Schedule fastest(const Conv1dProblem& problem, const DeviceProperties& device, bool linked) {
  if (!steps_by_one(problem) || interprets(problem, linked)) return Schedule::direct;
  const DepthwiseKernel direct = kernel_of(problem, {true, Schedule::direct, 0}, linked);
  if (!is_of(direct, DepthwiseFamily::direct)) return Schedule::direct;

  const DepthwisePolicy& policy = policy_of(device, kDepthwisePolicies);
  const auto ring_of = [&](Schedule schedule) { return plan_as(problem, {true, schedule, 0}, device, linked); };
  const auto is_one_wave = [](const Conv1dPlan& ring) {
    return ring.threads == 0 || ring.grid == ring.depthwise.as<StagedPlan>().tiles;
  };
  if (problem.channels_last) {
    const int taps = problem.whole_words ? policy.one_stage_taps : policy.one_stage_taps_gathered.of(problem.dtype);
    const bool one_stage = problem.taps >= taps && !is_one_wave(ring_of(Schedule::two_stage));
    return one_stage ? Schedule::single_stage : Schedule::two_stage;
  }
  const Conv1dPlan ring = ring_of(Schedule::thread_scope);
  if (ring.threads > 0 && is_one_wave(ring) && problem.taps > kFewTaps) return Schedule::thread_scope;
  return problem.taps >= policy.producer_taps.of(problem.dtype) ? Schedule::producer_consumer : Schedule::direct;
}

}  // namespace

Conv1dPlan plan_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                          bool linked) {
  return automatic_plan(
      request, [&](const ScheduleRequest& chosen) { return plan_as(problem, chosen, device, linked); },
      [&] { return fastest(problem, device, linked); });
}

double depthwise_issue_slots(const Conv1dProblem& problem, const DeviceProperties& device) {
  return policy_of(device, kDepthwisePolicies).work.of(problem);
}

}  // namespace sluice
