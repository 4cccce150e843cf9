#include <cstdint>
#include <initializer_list>

#include "kernels/common/int_math.h"
#include "kernels/filter2d/filter2d.h"
#include "kernels/filter2d/tile.h"

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

const char* direct_reason(const ScheduleRequest& request, const Filter2dProblem& problem) {
  if (!request.automatic) return "forced: patches through registers, halos through the L1 cache";
  return problem.separable ? "auto: patches through registers, each row filtered once for all rows of a patch"
                           : "auto: patches through registers; what neighbours share comes from the L1 cache";
}

void refuse(Filter2dPlan& plan, const char* reason) {
  plan.threads = 0;
  plan.reason = reason;
}

void set_direct(Filter2dPlan& plan, const DeviceProperties& device, long long tiles, long long bytes) {
  plan.depth = 1;
  plan.grid = tiles;
  if (bytes > device.shared_memory_per_block) return refuse(plan, "the kernel's taps must fit into the shared memory of a block");
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
  if (stage_bytes <= device.shared_memory_per_block) {
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
  plan.reason = ring_reason(request);
}

}  // namespace

Filter2dProblem problem_of(const Filter2dParams& params) {
  const int width = word_elements(params.dtype);
  const bool alike = params.output_strides[3] == 1 && params.output_strides[2] % width == 0;
  const bool aligned = reinterpret_cast<std::uintptr_t>(params.output) % (width * size_of(params.output_dtype)) == 0 &&
                       params.output_strides[0] % width == 0 && params.output_strides[1] % width == 0;
  return {params.batch,         params.channels,     params.output_height,       params.output_width,
          params.kernel_height, params.kernel_width, params.row_taps != nullptr, params.dtype,
          alike && !aligned};
}

Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device) {
  Filter2dPlan plan;
  plan.schedule = request.automatic ? Schedule::direct : request.schedule;
  plan.threads = kFilter2dThreads;
  plan.reason = direct_reason(request, problem);
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

}  // namespace sluice
