#include <initializer_list>

#include "kernels/operators/filter2d/direct_plans.h"
#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/filter2d/policy.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/automatic_plan.h"

namespace sluice {
namespace {

// Threads across: the most preferred of the shapes with the fewest tiles.
int choose_lanes(const Filter2dPolicy& policy, long long vectors, long long height, int patch_rows) {
  int best = 0;
  long long fewest = 0;
  for (int lanes : policy.lanes) {
    const long long tiles = ceil_div<long long>(vectors, lanes) *
                            ceil_div<long long>(height, static_cast<long long>(kFilter2dThreads / lanes) * patch_rows);
    if (best == 0 || tiles < fewest) {
      best = lanes;
      fewest = tiles;
    }
  }
  return best;
}

// Whether strips exist and 32-bit numbers hold their indices, at any number of rows.
bool fits_strips(const Filter2dProblem& problem) {
  constexpr long long kMost = 1LL << 30;
  const long long planes = problem.batch * problem.channels,
                  words = problem.output_width / word_elements(problem.dtype);
  if (planes < 1 || words < 1 || problem.output_height < 1) return false;
  if (planes >= kMost || words >= kMost / kWordBytes || problem.output_height >= kMost) return false;
  if (words * problem.output_height >= kMost) return false;
  return planes * ceil_div<long long>(words * problem.output_height, kFilter2dThreads) < kMost;
}

// Unaligned strips across: a word of columns each, wherever the output's words start.
long long unaligned_words(const Filter2dProblem& problem) {
  const int width = word_elements(problem.dtype);
  return ceil_div<long long>(problem.interior.end_column + width - 1, width);
}

// Whether a square's kernel for unaligned rows takes the problem. Columns are faster for 5 x 5 taps, but not on bytes.
bool suits_unaligned(const Filter2dProblem& problem, bool linked) {
  const int side = problem.kernel_height;
  const bool takes = side == problem.kernel_width && (side == 3 || (side == 5 && problem.sampling.bytes)) &&
                     !problem.separable && !problem.has_pre && !problem.casts && (!problem.has_post || linked) &&
                     problem.dtype != DType::float64 && problem.sampling.have_unit_steps() && problem.in_rows;
  if (!takes || problem.interior.end_row <= problem.interior.row) return false;
  if (min_of(problem.output_height, problem.output_width) < kUnalignedLeastExtent) return false;
  const long long planes = problem.batch * problem.channels, words = unaligned_words(problem);
  return planes < (1LL << 30) && problem.output_height * words < (1LL << 30) &&
         planes * (ceil_div<long long>(words * problem.output_height, kUnalignedLanes) + problem.output_width) <
             (1LL << 30);
}

Filter2dKernel columns_of(const Filter2dProblem& problem) {
  const bool bytes = problem.sampling.bytes;
  switch (problem.kernel_height) {
    case 3: return bytes ? Filter2dKernel::bytes_columns3 : Filter2dKernel::columns3;
    case 5: return bytes ? Filter2dKernel::bytes_columns5 : Filter2dKernel::columns5;
    case 7: return Filter2dKernel::columns7;
    default: return Filter2dKernel::columns9;
  }
}

Filter2dKernel tiled_of(const Filter2dProblem& problem) {
  const bool bytes = problem.sampling.bytes;
  if (problem.separable) return bytes ? Filter2dKernel::bytes_tiled_separable : Filter2dKernel::tiled_separable;
  return bytes ? Filter2dKernel::bytes_tiled : Filter2dKernel::tiled;
}

Filter2dKernel kernel_of(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                         bool linked) {
  if (request.schedule != Schedule::direct) return Filter2dKernel::staged;
  // Schedules have the same bits. These products sum in another order, so only `auto` takes them.
  if (request.automatic && suits_toeplitz(problem, device)) return Filter2dKernel::toeplitz;
  const bool is_3 = problem.kernel_height == 3, bytes = problem.sampling.bytes;
  const bool is_plain = problem.sampling.are_plain(),
             small = is_small_square(problem.kernel_height, problem.kernel_width);
  // The kernels for aligned rows have no `pre`, and interpret nothing.
  const bool fits_aligned =
      small && is_plain && problem.aligned && !problem.separable && problem.dtype != DType::float64;
  const bool interprets = problem.has_post && !linked;
  if (fits_aligned && !problem.has_pre && !interprets && fits_strips(problem)) {
    return is_3 ? Filter2dKernel::aligned3 : Filter2dKernel::aligned5;
  }
  if (suits_unaligned(problem, linked)) {
    if (bytes) return is_3 ? Filter2dKernel::bytes_unaligned3 : Filter2dKernel::bytes_unaligned5;
    return Filter2dKernel::unaligned3;
  }
  // Patches of aligned words interpret chains faster.
  if (!fits_aligned) {
    if (suits_columns(problem)) return columns_of(problem);
    if (suits_tiled(problem, device)) return tiled_of(problem);
  }
  if (!is_plain) return bytes ? Filter2dKernel::bytes_sampled : Filter2dKernel::sampled;
  if (problem.separable) return Filter2dKernel::separable;
  // The squares' own patches have no `pre`, and interpret no tensors.
  if (!small || problem.has_pre || (problem.has_tensors && !linked)) return Filter2dKernel::patches;
  return is_3 ? Filter2dKernel::square3 : Filter2dKernel::square5;
}

const char* direct_reason(const ScheduleRequest& request, Filter2dKernel kernel) {
  if (is_of(kernel, Filter2dFamily::pixels)) {
    return request.automatic ? "auto: windows through registers, pixel by pixel" : "forced: windows pixel by pixel";
  }
  if (is_of(kernel, Filter2dFamily::unaligned_strips)) {
    return request.automatic ? "auto: words of unaligned rows are shifted in registers; the frame goes pixel by pixel"
                             : "forced: words of unaligned rows are shifted in registers";
  }
  if (kernel == Filter2dKernel::toeplitz) {
    return "auto: tensor cores, windows of the image's rows against Toeplitz matrices of the taps";
  }
  if (is_of(kernel, Filter2dFamily::tiles)) {
    return request.automatic ? "auto: patches of a tile in shared memory, which takes any layout"
                             : "forced: patches of a tile in shared memory";
  }
  if (is_of(kernel, Filter2dFamily::columns)) {
    return request.automatic ? "auto: a thread for each column of any layout, its windows through shared memory"
                             : "forced: a thread for each column of any layout, its windows through shared memory";
  }
  if (!request.automatic) {
    return is_of(kernel, Filter2dFamily::strips)
               ? "forced: words of aligned rows through registers, halos through the L1 cache"
               : "forced: patches through registers, halos through the L1 cache";
  }
  if (is_of(kernel, Filter2dFamily::strips))
    return "auto: words of aligned rows through registers; halos come from the L1 cache";
  return kernel == Filter2dKernel::separable
             ? "auto: patches through registers, each row filtered once for all rows of a patch"
             : "auto: patches through registers; inputs shared by adjacent patches come from the L1 cache";
}

// Resident blocks per SM of a kernel without a ring, by the registers of its launch bounds; linked kernels have none.
int register_blocks(Filter2dKernel kernel, const Filter2dProblem& problem, bool linked) {
  if (linked) return 0;
  if (is_of(kernel, Filter2dFamily::unaligned_strips)) return unaligned_blocks(problem.kernel_height);
  if (is_of(kernel, Filter2dFamily::strips)) return aligned_blocks(problem.kernel_height, problem.dtype, problem.casts);
  if (is_of(kernel, Filter2dFamily::tiles)) return tiled_blocks(problem.separable);
  return kernel == Filter2dKernel::separable ? kSeparableBlocks : kFilter2dResidentBlocks;
}

// Blocks for the strips of a plane.
long long blocks_of_plane(long long across, long long strips_down) {
  return ceil_div<long long>(across * strips_down, kFilter2dThreads);
}

// Rows of strips of `across` threads in each of its planes.
int strip_rows_of(const Filter2dProblem& problem, long long height, long long across, const DeviceProperties& device) {
  const long long planes = problem.batch * problem.channels;
  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  return rows_of_strip(problem.dtype, height, policy.strip_start_rows, policy.strip_clearly_less_percent, device,
                       [&](long long strips_down) { return planes * blocks_of_plane(across, strips_down); });
}

void set_strips(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  const bool is_3 = plan.which == Filter2dKernel::aligned3;
  plan.strips_across = problem.output_width / word_elements(problem.dtype);
  plan.strip_rows =
      is_3 ? aligned_rows(problem.dtype) : strip_rows_of(problem, problem.output_height, plan.strips_across, device);
  plan.strips_down = ceil_div<long long>(problem.output_height, plan.strip_rows);
  plan.blocks_per_plane = blocks_of_plane(plan.strips_across, plan.strips_down);
  // The fewest whole warps that cover the strips: more would leave most of a small plane's block idle.
  const long long strips = ceil_div<long long>(plan.strips_across * plan.strips_down, plan.blocks_per_plane);
  plan.threads = static_cast<int>(round_up<long long>(strips, 32));
  plan.tile = plan.threads * plan.strip_rows * word_elements(problem.dtype);
  plan.grid = problem.batch * problem.channels * plan.blocks_per_plane;
}

// Warps of strips; a plane's frame is in blocks after its strips.
void set_unaligned_strips(Filter2dPlan& plan, const Filter2dProblem& problem, const DeviceProperties& device) {
  const Filter2dInterior& interior = problem.interior;
  constexpr int kWarps = kFilter2dThreads / 32;
  plan.strips_across = unaligned_words(problem);
  plan.warps_across = ceil_div<long long>(plan.strips_across, kUnalignedLanes);
  const long long height = interior.end_row - interior.row;
  plan.strip_rows = strip_rows_of(problem, height, plan.warps_across * 32, device);
  plan.strips_down = ceil_div<long long>(height, plan.strip_rows);
  plan.strip_blocks = static_cast<int>(ceil_div<long long>(plan.warps_across * plan.strips_down, kWarps));
  const long long frame = interior.frame(problem.output_height, problem.output_width);
  plan.blocks_per_plane = plan.strip_blocks + ceil_div<long long>(frame, kFilter2dThreads);
  plan.threads = kFilter2dThreads;
  plan.tile = kWarps * kUnalignedLanes * plan.strip_rows * word_elements(problem.dtype);
  plan.grid = problem.batch * problem.channels * plan.blocks_per_plane;
}

void set_direct(Filter2dPlan& plan, const DeviceProperties& device, long long tiles, long long bytes) {
  plan.grid = tiles;
  if (bytes > most_dynamic_shared_memory(device)) {
    return refuse(plan, "the kernel's taps must fit into the shared memory of a block");
  }
  plan.shared_memory = plan.tap_bytes = static_cast<int>(bytes);
}

void set_ring(Filter2dPlan& plan, const Filter2dProblem& problem, const ScheduleRequest& request,
              const DeviceProperties& device, long long tiles, long long bytes) {
  // The last lane's words up to its last tap word, and one more that is shifted in (patch.cuh).
  const long long pitch = static_cast<long long>(plan.lanes) * filter2d_patch_words(problem.dtype) +
                          filter2d_tap_words(problem.kernel_width, problem.dtype) + 1;
  const long long rows = static_cast<long long>(kFilter2dThreads / plan.lanes) * kPatchRows + problem.kernel_height - 1;
  const long long stage_bytes = rows * pitch * kWordBytes + bytes;
  const int producers = producer_threads(plan.schedule);
  RingShape ring{0, 0};
  if (stage_bytes <= most_dynamic_shared_memory(device)) {
    ring = shape_ring(static_cast<int>(stage_bytes),
                      producers == 0 ? kFilter2dResidentBlocks : kFilter2dResidentBlocks - 1, tiles, request, device);
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
  plan.resident_blocks = ring.blocks;
  if (problem.has_adjacent_columns())
    plan.copy_width = ring_copy_width(plan.schedule, static_cast<int>(pitch * kWordBytes), device);
  plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
  plan.reason = request.automatic
                    ? "auto: a ring, because many taps read each image row, and shared memory has no cache misses"
                    : ring_reason(request);
}

void set_patches(Filter2dPlan& plan, const Filter2dProblem& problem, const ScheduleRequest& request,
                 const DeviceProperties& device) {
  const bool direct = plan.schedule == Schedule::direct;
  const bool sampled = is_of(plan.which, Filter2dFamily::pixels);
  const int columns = sampled ? 1 : filter2d_columns(problem.dtype);
  const int rows = sampled ? kSampledRows : filter2d_rows(problem.separable, direct);
  // Vectors start at the output's words, so a shifted row may need one more.
  const int slack = problem.shifted && !sampled ? word_elements(problem.dtype) - 1 : 0;
  const long long vectors = ceil_div<long long>(problem.output_width + slack, columns);
  plan.lanes = choose_lanes(policy_of(device, kFilter2dPolicies), vectors, problem.output_height, rows);
  plan.threads = kFilter2dThreads;
  plan.tile = kFilter2dThreads * columns * rows;
  const long long tile_rows = static_cast<long long>(kFilter2dThreads / plan.lanes) * rows;
  plan.tiles_across = ceil_div<long long>(vectors, plan.lanes);
  plan.tiles_down = ceil_div<long long>(problem.output_height, tile_rows);
  const long long tiles = problem.batch * problem.channels * plan.tiles_across * plan.tiles_down;
  if (direct) {
    set_direct(plan, device, tiles, tap_bytes(problem));
  } else {
    set_ring(plan, problem, request, device, tiles, tap_bytes(problem));
  }
}

// Why no ring takes this sampling.
const char* sampling_refusal(const Filter2dSampling& sampling) {
  if (!sampling.have_unit_steps()) return "a ring needs adjacent windows: stride and dilation must be 1";
  if (sampling.border != Border::zeros) return "a ring pads with zeros only: padding_mode must be 'zeros'";
  return "a ring copies without converting the dtype: the image must not be uint8";
}

Filter2dPlan plan_as(const Filter2dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                     bool linked) {
  Filter2dPlan plan;
  plan.which = kernel_of(problem, request, device, linked);
  plan.shifted = problem.shifted;
  plan.method = "stencil";
  plan.kernel = name_of(plan.which);
  plan.schedule = request.schedule;
  plan.reason = direct_reason(request, plan.which);
  plan.copy_width = problem.has_adjacent_columns() ? kWordBytes : static_cast<int>(size_of(problem.dtype));
  if (is_of(plan.which, Filter2dFamily::pixels) || is_of(plan.which, Filter2dFamily::columns) ||
      is_of(plan.which, Filter2dFamily::tiles))
    plan.copy_width = static_cast<int>(size_of(problem.dtype));
  if (problem.sampling.bytes) plan.copy_width = is_of(plan.which, Filter2dFamily::unaligned_strips) ? 4 : 1;
  if (plan.schedule != Schedule::direct && !problem.sampling.are_plain()) {
    plan.threads = 0;
    refuse(plan, sampling_refusal(problem.sampling));
    return plan;
  }
  if (is_of(plan.which, Filter2dFamily::strips)) {
    set_strips(plan, problem, device);
  } else if (plan.which == Filter2dKernel::toeplitz) {
    set_toeplitz(plan, problem, device);
  } else if (is_of(plan.which, Filter2dFamily::tiles)) {
    set_tiled(plan, problem, device);
  } else if (is_of(plan.which, Filter2dFamily::columns)) {
    set_columns(plan, problem, device);
  } else if (is_of(plan.which, Filter2dFamily::unaligned_strips)) {
    set_unaligned_strips(plan, problem, device);
  } else {
    set_patches(plan, problem, request, device);
  }
  plan.alignment = min_of(plan.copy_width, kWordBytes);
  if (plan.schedule == Schedule::direct) {
    plan.resident_blocks = resident_blocks(plan, register_blocks(plan.which, problem, linked), device);
  }
  return plan;
}

// The ring that is faster than `direct`, else `direct`.
Schedule fastest(const Filter2dProblem& problem, const DeviceProperties& device, bool linked) {
  if (!problem.sampling.are_plain()) return Schedule::direct;
  const bool interprets = (problem.has_pre || problem.has_post) && !linked;  // slow in rings
  const Filter2dKernel kernel = kernel_of(problem, {true, Schedule::direct, 0}, device, linked);
  const bool has_ring = kernel == Filter2dKernel::patches || kernel == Filter2dKernel::separable;
  if (!has_ring || interprets) return Schedule::direct;

  const Filter2dPolicy& policy = policy_of(device, kFilter2dPolicies);
  const auto plan_of = [&](Schedule schedule) { return plan_as(problem, {true, schedule, 0}, device, linked); };
  const int side = max_of(problem.kernel_height, problem.kernel_width);
  const ByElement& least = problem.separable ? policy.unlike_rows_separable_side : policy.unlike_rows_side;
  if (!problem.rows_equally_aligned && side < least.of(problem.dtype)) return Schedule::direct;

  const Filter2dPlan two_stage = plan_of(Schedule::two_stage);
  // A second stage that costs resident blocks costs more than it gains.
  const bool second_is_free = two_stage.threads > 0 && two_stage.grid == plan_of(Schedule::single_stage).grid;
  return second_is_free ? Schedule::two_stage : Schedule::single_stage;
}

}  // namespace

Filter2dPlan plan_filter2d(const Filter2dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device, bool linked) {
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
