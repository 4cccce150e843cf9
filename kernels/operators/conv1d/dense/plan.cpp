// Chooses the tile of a dense convolution: the tile whose blocks finish first, by the estimated cycles of a tile.
#include <cstdint>

#include "kernels/operators/conv1d/aten_reason.h"
#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/dense/cycles.h"
#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/operators/conv1d/dense/problem.h"
#include "kernels/operators/conv1d/dense/slower_because.h"
#include "kernels/operators/conv1d/dense/splits.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr int kMatrixPositions = 16;  // positions of a transposed matrix; a stage has whole matrices
constexpr int kGatheredRows = 8;      // rows that a thread gathers
constexpr int kLeastStages = 2, kEnoughStages = 4, kEnoughSplitStages = 3;
constexpr int kMostSplits = 12;
constexpr int kWeightStageBytes = 16 * 1024;   // about: enough to be worth a stage's barriers
constexpr long long kMostPositions = 1 << 30;  // positions and tiles: counted in 32 bits
constexpr long long kMostMapStride = 8;        // CUDA's limits of a tensor map
constexpr int kMostBoxPositions = 256;
// A raw tile has at least one position of each residue.
constexpr long long kMostTransposedStride = kRawPositions;

// Shorter results leave a tile nearly empty, and packing the weights takes longer than aten's convolution: estimated.
constexpr long long kLeastLength = 16;

constexpr AtenReason kDoesNotFit(
    "two stages of input, each as long as the kernel's reach, do not fit into shared memory");
constexpr AtenReason kShort("so few positions leave tensor-core tiles mostly empty");
constexpr AtenReason kLong("the tensor-core kernels take fewer than 2^30 positions and tiles");
constexpr const char* kResident =
    "auto: tensor cores, one tile of the input in shared memory for all taps, beside all weights";
constexpr const char* kUnits =
    "auto: tensor cores, a ring of units: the input rows of some taps, and these taps' weights";
constexpr const char* kStreamed =
    "auto: tensor cores, one tile of the input in shared memory for all taps, while the weights stream through a ring";

PackedOrder order_of(const Conv1dProblem& problem) {
  return packed_order(problem.channels, inputs_of_group(problem), problem.taps, element_bytes(problem),
                      parts_of(problem));
}

long long input_stage_bytes(const DensePlan& plan) {
  return plan.order.parts * round_up<long long>(1LL * plan.stage_rows * plan.row_bytes(), kTileAlignment);
}
long long weight_stage_bytes(const DensePlan& plan) {
  return 1LL * plan.stage_taps * plan.order.parts * plan.tile().channels * plan.row_bytes();
}
// Whether the device's kernel is compiled for the tile, and has registers for its sums.
bool has_kernel(const DenseShape& tile, bool is_pingpong, const Conv1dProblem& problem, DenseCode code) {
  const bool has_sums = parts_of(problem) == 1 || tile.blocks * tile.channels / 2 <= kMostSplitSums;
  if (code == DenseCode::portable) return has_sums && is_portable(tile);
  return has_sums && (parts_of(problem) == 1 || !is_pingpong) && (!problem.interleaves || interleaves(tile));
}

// Spreads the taps evenly over stages of about as many bytes.
void set_stage_taps(DensePlan& plan, int bytes) {
  const int taps = plan.residues.taps_of(0);
  const int most = max_of(1, bytes / (plan.order.parts * plan.tile().channels * plan.row_bytes()));
  plan.stage_taps = ceil_div(taps, ceil_div(taps, most));
}

// A tile and how its blocks work.
struct TileChoice {
  int shape;  // index in kDenseShapes
  bool is_pingpong;
  int splits;
  bool resident;
  bool halves_k_blocks;
};

// Sets a tile's stages and shared memory, with at least so many stages of the input. Returns whether they fit.
bool set_stages(Conv1dPlan& plan, int weight_stage, int least_stages, const DeviceProperties& device) {
  DensePlan& own = plan.dense;
  set_stage_taps(own, weight_stage);
  const long long beside = kDenseSharedBytes + dense_raw_bytes(own.fetch);
  const long long available = most_dynamic_shared_memory(device) - beside;
  const long long input = input_stage_bytes(own), weight = weight_stage_bytes(own);
  const auto set = [&](long long input_stages, long long weight_stages) {
    own.input_stages = static_cast<int>(input_stages);
    own.weight_stages = static_cast<int>(weight_stages);
    plan.threads = kDenseThreads;
    plan.depth = own.input_stages;
    plan.shared_memory = static_cast<int>(beside + input_stages * input + weight_stages * weight);
    return true;
  };
  if (own.resident) {
    const long long all = own.weight_stages_of_tile();
    // With fewer stages of the input it arrives too late. Not measured for float32.
    const int least = own.order.element_bytes == 2 ? kEnoughStages : least_stages;
    if (all > kMostWeightStages || all * weight + least * input > available) return false;
    return set(min_of<long long>(kMostInputStages, (available - all * weight) / input), all);
  }
  for (int stages = kMostInputStages; stages >= least_stages; --stages) {
    if (available < stages * input) continue;
    const long long weights = min_of((available - stages * input) / weight, 1LL * kMostWeightStages);
    const int enough = own.order.parts == 2 ? kEnoughSplitStages : kEnoughStages;
    if (weights >= (stages > kLeastStages ? enough : kLeastStages)) return set(stages, weights);
  }
  return false;
}

// `threads` stays 0 where they do not fit. A warpgroup that multiplies alone leaves the tensor cores idle when it
// begins a stage of the weights, so stages are longer in ping-pong (H200, 512 channels and 7 taps: 109 us to 103).
void set_stages(Conv1dPlan& plan, const DeviceProperties& device) {
  if (plan.dense.is_pingpong && set_stages(plan, 2 * kWeightStageBytes, kEnoughStages, device)) return;
  set_stages(plan, kWeightStageBytes, kLeastStages, device);
}

// Sets the tiles and the grid. Weights stay where all of a block's tiles have the same channels: tiles that are a grid
// apart. The splits of the last tiles are one wave, in which none waits for a block that has not begun. False where
// that cannot be.
bool set_grid(Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  DensePlan& own = plan.dense;
  own.channel_tiles = problem.groups * ceil_div<long long>(outputs_of_group(problem), own.channels());
  own.position_tiles = ceil_div<long long>(problem.output_length, own.positions());
  const long long tiles = problem.batch * own.channel_tiles * own.position_tiles;
  const long long blocks = 1LL * device.multiprocessors * plan.resident_blocks;  // that run at once
  const long long split = own.splits > 1 ? tiles % blocks : 0;
  own.whole_tiles = tiles - split;
  own.tiles = own.whole_tiles + split * own.splits;
  plan.grid = min_of(own.tiles, blocks);
  if (own.splits > 1) return !own.resident && split > 0 && split * own.splits <= blocks;
  if (own.resident) plan.grid = min_of(own.tiles, blocks / own.channel_tiles * own.channel_tiles);
  return plan.grid > 0;
}

// Whether a tensor map can fetch the input: a box must not contain another group's channels, which may be infinite.
bool has_map(const DensePlan& plan, const Conv1dProblem& problem) {
  const bool has_whole_blocks = problem.groups == 1 || inputs_of_group(problem) % plan.k_block() == 0;
  return plan.fetch == DenseFetch::channels && problem.stride <= kMostMapStride && has_whole_blocks &&
         problem.length > 0;
}

// Spreads a stage's rows over copies of whole swizzle atoms.
void set_map(DensePlan& plan, int stride) {
  const int most = kMostBoxPositions / stride / kSwizzleRows * kSwizzleRows;
  plan.map_copies = ceil_div(plan.stage_rows, most);
  plan.map_rows = round_up(ceil_div(plan.stage_rows, plan.map_copies), kSwizzleRows);
  plan.stage_rows = plan.map_copies * plan.map_rows;
}

// Returns whether a stage fits.
bool set_stage_rows(DensePlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const long long stride = problem.stride, positions = plan.positions();
  const bool together = plan.is_general && transposes(plan.fetch);
  const long long reach = (positions - 1) * stride + (problem.taps - 1LL) * problem.dilation + 1 + plan.shift;
  const long long rows =
      plan.is_general ? stage_rows(problem.taps, stride, problem.dilation, positions, together) : reach;
  if (rows * plan.order.parts * plan.row_bytes() > device.shared_memory_per_block) return false;
  // Rows copied from whole positions need not be a multiple.
  const int multiple = !plan.is_general ? kMatrixPositions : plan.fetch == DenseFetch::elements ? kGatheredRows : 1;
  plan.stage_rows = static_cast<int>(round_up<long long>(rows, multiple));
  if (has_map(plan, problem)) set_map(plan, static_cast<int>(stride));
  plan.stage_positions = together ? static_cast<int>(round_up<long long>(reach, kMatrixPositions)) : plan.stage_rows;
  plan.residues = tap_residues(problem.taps, static_cast<int>(stride), static_cast<int>(problem.dilation),
                               plan.positions(), together);
  return true;
}

// What follows from the tile and the stages.
void set_rest(Conv1dPlan& plan, const Conv1dProblem& problem) {
  DensePlan& own = plan.dense;
  plan.tile = own.positions() * own.channels();
  plan.alignment = plan.copy_width = kWordBytes;
  plan.reason = own.resident ? kResident : own.is_portable ? kUnits : kStreamed;
  if (!problem.is_packed) plan.workspace_bytes = own.order.bytes();
  if (own.splits > 1) own.sums_bytes = split_bytes(own);
  plan.workspace_bytes += own.sums_bytes;
}

// `plan` has a tile, and where its results are.
Conv1dPlan plan_portable_tile(Conv1dPlan plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  DensePlan& own = plan.dense;
  if ((problem.taps - 1LL) * problem.dilation >= kMostPositions) return {};
  own.is_general = true;
  own.fetch = problem.fetch == DenseFetch::channels ? DenseFetch::channels : DenseFetch::elements;
  own.residues = tap_residues(problem.taps, static_cast<int>(problem.stride), static_cast<int>(problem.dilation),
                              own.positions(), /*together=*/false);
  plan.kernel = name_of(portable_kernel_of(own, problem.interleaves));
  set_portable_stages(plan, device);
  if (plan.threads == 0 || !set_grid(plan, problem, device)) return {};
  set_rest(plan, problem);
  return plan;
}

Conv1dPlan plan_tile(const Conv1dProblem& problem, const TileChoice& choice, const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "dense";
  plan.which = Conv1dMethod::dense;
  plan.resident_blocks = 1;
  DensePlan& own = plan.dense;
  own.is_portable = dense_code(device) == DenseCode::portable;
  plan.schedule = own.is_portable ? Schedule::producer_consumer : Schedule::bulk;
  own.shape = choice.shape;
  own.is_pingpong = choice.is_pingpong;
  own.resident = choice.resident;
  own.order = order_of(problem);
  own.halves_k_blocks = choice.halves_k_blocks;
  if (own.row_bytes() < kShortestRow) return plan;
  own.k_blocks = static_cast<int>(ceil_div<long long>(inputs_of_group(problem), own.k_block()));
  own.splits = choice.splits;
  if (ceil_div(own.k_blocks, own.k_blocks_of_split()) != own.splits) return plan;  // a split would be empty
  own.is_general = problem.stride > 1 || problem.groups > 1 || own.splits > 1;
  own.steps = own.row_bytes() / kStepBytes;
  const long long bytes = inputs_of_group(problem) * element_bytes(problem);
  if (own.is_general && own.k_blocks == 1 && ceil_div<long long>(bytes, kStepBytes) == 3) own.steps = 3;
  own.by_positions = problem.by_positions;
  if (own.is_portable) return plan_portable_tile(plan, problem, device);
  own.fetch = problem.fetch;
  if (own.fetch == DenseFetch::positions) {  // vectors are aligned in the input, whatever the padding
    const int word = word_of(problem);
    own.shift = static_cast<int>((word - problem.padding % word) % word);
  }
  if (!set_stage_rows(own, problem, device) || !set_grid(plan, problem, device)) return plan;
  plan.kernel = problem.interleaves ? kInterleavedKernel : name_of(kernel_of(own));
  set_stages(plan, device);
  set_rest(plan, problem);
  return plan;
}

struct TimedPlan {
  Conv1dPlan plan;
  long long cycles = 0;  // block_cycles of the plan
};

// 0 threads where no tile fits. The last, and so largest, of equally fast tiles.
TimedPlan fastest_tile(const Conv1dProblem& problem, int splits, bool halves, const DeviceProperties& device) {
  TimedPlan best;
  const DenseCode code = dense_code(device);
  for (bool is_pingpong : {false, true}) {
    // Tiles of different numbers of k-blocks are not alternated.
    if (is_pingpong && splits > 1 && code == DenseCode::wgmma) continue;
    for (int shape = 0; shape < static_cast<int>(std::size(kDenseShapes)); ++shape) {
      if (!has_kernel(kDenseShapes[shape], is_pingpong, problem, code)) continue;
      for (bool resident : {false, true}) {
        const Conv1dPlan plan = plan_tile(problem, {shape, is_pingpong, splits, resident, halves}, device);
        if (plan.threads == 0) continue;
        const long long cycles = block_cycles(plan, problem, device);
        if (best.plan.threads == 0 || cycles <= best.cycles) best = {plan, cycles};
      }
    }
  }
  return best;
}

// In k-blocks, or in halves of them where the kernel takes these and is faster. Float32 in parts takes halves only
// where nothing else fits: its sums of a tap would be shorter, and more of them are added one by one.
TimedPlan fastest_tile(const Conv1dProblem& problem, int splits, const DeviceProperties& device) {
  const TimedPlan whole = fastest_tile(problem, splits, /*halves=*/false, device);
  const bool fits = whole.plan.threads > 0;
  if (dense_code(device) != DenseCode::portable || (fits && parts_of(problem) == 2)) return whole;
  const TimedPlan half = fastest_tile(problem, splits, /*halves=*/true, device);
  return half.plan.threads > 0 && (!fits || half.cycles < whole.cycles) ? half : whole;
}

// The fastest tile, with the last tiles split where that is faster. Not where the kernel runs `pre`: until `pre` is
// linked, it is a pass, and the kernel behind it might be split otherwise, with other bits.
Conv1dPlan fastest_plan(const Conv1dProblem& problem, const DeviceProperties& device) {
  TimedPlan best = fastest_tile(problem, /*splits=*/1, device);
  if (best.plan.threads == 0 || problem.has_pre || !problem.may_split) return best.plan;
  const int k_blocks = best.plan.dense.k_blocks;
  for (int wanted = 2, before = 1; wanted <= min_of(k_blocks, kMostSplits); ++wanted) {
    const int splits = ceil_div(k_blocks, ceil_div(k_blocks, wanted));  // none of them empty
    if (splits == before) continue;
    before = splits;
    const TimedPlan split = fastest_tile(problem, splits, device);
    if (split.plan.threads > 0 && split.cycles < best.cycles) best = split;
  }
  return best.plan;
}

// The fastest tile after a conversion of the input to channels-last; 0 threads where there is none.
Conv1dPlan plan_converted(const Conv1dProblem& problem, const DeviceProperties& device) {
  const bool has_whole_words = problem.groups == 1 || inputs_of_group(problem) % word_of(problem) == 0;
  if (problem.length == 0 || !has_whole_words) return {};
  Conv1dProblem converted = problem;
  converted.fetch = DenseFetch::channels;
  converted.has_pre = false, converted.pre_work = 0;
  Conv1dPlan plan = fastest_plan(converted, device);
  if (plan.threads == 0) return plan;
  plan.dense.converts_input = true;
  plan.dense.applies_pre_first = problem.has_pre;
  plan.workspace_bytes +=
      ToChannelsLastParams::bytes(problem.dtype, problem.batch, problem.input_channels, problem.length);
  return plan;
}

}  // namespace

bool has_words(const Operand<3>& operand, const long long (&sizes)[3], int dimension) {
  if (operand.strides[dimension] != 1 || reinterpret_cast<std::uintptr_t>(operand.data) % kWordBytes != 0) return false;
  for (int d = 0; d < 3; ++d) {
    if (d != dimension && sizes[d] > 1 && operand.strides[d] % word_elements(operand.dtype) != 0) return false;
  }
  return true;
}

DenseFetch dense_fetch(const Conv1dParams& params) {
  const long long sizes[3] = {params.batch, params.dense.groups * params.dense.input_channels, params.length};
  const int word = word_elements(params.input.dtype);
  if (params.dense.input_channels % word == 0 && has_words(params.input, sizes, 1)) return DenseFetch::channels;
  if (params.input.strides[2] != 1) return DenseFetch::elements;
  return params.length % word == 0 && has_words(params.input, sizes, 2) ? DenseFetch::positions : DenseFetch::shifted;
}

DenseKernel kernel_of(const DensePlan& plan) {
  if (plan.is_general) {
    return plan.by_positions ? DenseKernel::dense_general_positions : DenseKernel::dense_general_channels;
  }
  return plan.by_positions ? DenseKernel::dense_positions : DenseKernel::dense_channels;
}

std::string describe(const DensePlan& plan) {
  const auto number = [](long long value) { return std::to_string(value); };
  const std::string stages = plan.is_portable ? "" : number(plan.weight_stages) + " stages of ";
  const std::string weights =
      plan.resident ? "all weights"
                    : stages + number(plan.stage_taps) + (plan.stage_taps == 1 ? " tap's weights" : " taps' weights");
  const std::string splits = plan.splits > 1 ? "; split-K of " + number(plan.split_tiles()) + " of its " +
                                                   number(plan.whole_tiles + plan.split_tiles()) + " tiles by " +
                                                   number(plan.splits)
                                             : "";
  const std::string residues = plan.residues.stride == 1      ? ""
                               : plan.residues.are_together() ? " of all residues"
                                                              : " of a residue";
  return "tiles of " + number(plan.positions()) + " positions x " + number(plan.channels()) + " channels" +
         (plan.is_pingpong && !plan.is_portable ? ", ping-pong; " : "; ") + number(plan.input_stages) + " stages of " +
         number(plan.k_block()) + " input channels x " + number(plan.stage_rows) + " positions" + residues + " and " +
         weights + " in shared memory" +
         (plan.converts_input ? "; the input is converted to channels-last in a workspace first" : "") +
         (plan.applies_pre_first ? ", with pre applied" : "") + splits;
}

Conv1dPlan plan_dense_unconverted(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  if (!transposes(problem.fetch) || problem.stride <= kMostTransposedStride) plan = fastest_plan(problem, device);
  if (plan.threads > 0 || !transposes(problem.fetch)) return plan;
  // Fetching element by element needs no raw tiles.
  Conv1dProblem narrow = problem;
  narrow.fetch = DenseFetch::elements;
  return fastest_plan(narrow, device);
}

Conv1dPlan plan_dense(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  long long longest = max_of(problem.output_length + problem.padding, problem.length);
  if (problem.stride > 1) {  // the last tile's rows are `stride` apart
    const long long reach = problem.padding + problem.taps * problem.dilation;
    longest = max_of(longest, (problem.output_length + kMostStageRows) * problem.stride + reach);
  }
  if (max_of(max_of(longest, problem.input_channels), problem.channels) >= kMostPositions) {
    refuse(plan, kLong);
    return plan;
  }
  if (problem.output_length < kLeastLength) {
    refuse(plan, kShort);
    return plan;
  }
  const auto reason_of = [&](const Conv1dPlan& made) -> const char* {
    if (made.threads == 0) return kDoesNotFit;
    if (made.dense.tiles >= kMostPositions) return kLong;
    return slower_because(made, problem, device, all_cycles(made, problem, device));
  };
  plan = plan_dense_unconverted(problem, device);
  const char* reason = reason_of(plan);
  if (problem.fetch != DenseFetch::channels || problem.has_pre) {
    const Conv1dPlan converted = plan_converted(problem, device);
    const char* const reason_of_converted = reason_of(converted);
    const auto is_faster = [&] {
      return plan.threads == 0 || all_cycles(converted, problem, device) < all_cycles(plan, problem, device);
    };
    // A plan that aten does not beat is preferred to one that it does.
    if (converted.threads > 0 &&
        ((reason == nullptr) == (reason_of_converted == nullptr) ? is_faster() : reason != nullptr)) {
      plan = converted, reason = reason_of_converted;
    }
  }
  if (reason != nullptr) refuse(plan, reason);
  return plan;
}

}  // namespace sluice
