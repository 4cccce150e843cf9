#include "kernels/common/int_math.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/tile.h"

#include <cstdint>

namespace sluice {
namespace {

constexpr long long kLargest = 1LL << 40;  // of any product below, so that none overflows

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

// Where the block's taps do not fit, `plan.weight_bytes` stays 0.
void set_direct(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device, long long tiles,
                long long weight_rows) {
  plan.depth = 1;
  plan.tiles = plan.grid = tiles;
  const long long bytes = weight_rows * problem.taps * compute_bytes(problem.dtype);
  if (bytes > device.shared_memory_per_block) {
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
  if (stage_bytes <= device.shared_memory_per_block) {
    ring = shape_ring(static_cast<int>(stage_bytes), producers == 0 ? kConv1dResidentBlocks : kConv1dResidentBlocks - 1, request,
                      device);
  }
  const char* const refused = refusal(plan.schedule, device);
  if (refused != nullptr || ring.depth == 0) {
    plan.threads = 0;
    plan.reason = refused != nullptr
                      ? refused
                      : "the ring's stages (a tile, its halo and its taps) must fit into the shared memory of a block";
    return;
  }
  plan.threads += producers;
  plan.tiles = tiles;
  plan.depth = ring.depth;
  plan.stage_words = static_cast<int>(words);
  plan.weight_bytes = static_cast<int>(weight_bytes);
  plan.shared_memory = ring.depth * static_cast<int>(stage_bytes);
  plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
  plan.reason = ring_reason(request);
}

// Vectors of channels by positions: the plan for a channels-last result.
void plan_channels(Conv1dPlan& plan, const Conv1dProblem& problem, const ScheduleRequest& request,
                   const DeviceProperties& device) {
  plan.layout = Conv1dLayout::channels_last;
  const int channels = kChannelVectors * word_elements(problem.dtype);
  plan.threads = kConv1dThreads;
  plan.tile = channels * kTilePositions;
  plan.reason = direct_reason(request, true);
  const long long tiles = problem.batch * ceil_div<long long>(problem.channels, channels) *
                          ceil_div<long long>(problem.output_length, kTilePositions);
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

}  // namespace

Conv1dProblem problem_of(const Conv1dParams& params) {
  // The channels-last kernel writes vectors of channels and gives every output channel an input channel of
  // its own; anything else goes by rows, whatever its strides.
  const bool channels_last = params.output_strides[1] == 1 && params.channels > 1 && params.multiplier == 1;
  const int width = word_elements(params.input_dtype);
  const bool aligned = reinterpret_cast<std::uintptr_t>(params.output) % (width * size_of(params.output_dtype)) == 0 &&
                       params.output_strides[0] % width == 0 && params.output_strides[1] % width == 0;
  return {params.batch,  params.channels, params.output_length, params.multiplier, params.taps,
          params.stride, params.dilation, params.input_dtype,   channels_last,     aligned};
}

Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.schedule = request.automatic ? Schedule::direct : request.schedule;
  if (problem.channels_last) {
    plan_channels(plan, problem, request, device);
    if (plan.threads > 0 || !request.automatic) return plan;
  }
  plan_rows(plan, problem, request, device);
  return plan;
}

}  // namespace sluice
