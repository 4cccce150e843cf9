// Which tile a dense convolution is cut into: the one whose blocks are done first, by what a tile is reckoned to take.
#include <cstdint>

#include "kernels/common/int_math.h"
#include "kernels/conv1d/aten_reason.h"
#include "kernels/conv1d/conv1d.h"
#include "kernels/conv1d/dense/lay.h"

namespace sluice {
namespace {

constexpr int kHalfBytes = 2, kSumBytes = 4;
constexpr int kMatrixPositions = 16;  // of the matrices that are transposed, of which a stage has whole ones
constexpr int kBlock = 64;            // positions of a wgmma
constexpr int kStep = 16;             // input channels of one
constexpr int kLeastStages = 2, kEnoughWeightStages = 4;
constexpr int kWeightStageBytes = 16 * 1024;   // about, so that a stage is worth its barriers
constexpr long long kMostPositions = 1 << 30;  // and tiles, which the kernel counts in 32 bits
constexpr long long kMostStageRows = 1 << 13;  // of 32 bytes and more, in shared memory
// A raw tile of positions has at least one of each phase.
constexpr long long kMostTransposedStride = kRawPositions;

// What a tile is reckoned to take, in cycles of a multiprocessor. Fitted to all 14 ways to cut 16 convolutions in both
// layouts (H200, float16, identity): the tile that is reckoned to be the fastest takes 1.007 times what the fastest
// does, 1.16 times at most.
constexpr long long wgmma_cycles(int channels) { return max_of(channels / 2, 20 + channels / 4); }
// Where rows are short or taps have a stride, fitted to nine rows of suite `conv1d_dense`.
constexpr int input_bytes_per_cycle(DenseFetch fetch, bool strides, bool is_short) {
  switch (fetch) {
    case DenseFetch::channels: return 14;
    case DenseFetch::positions: return strides ? 6 : 12;
    case DenseFetch::shifted: return strides || is_short ? 3 : 8;
    default: return 2;
  }
}
constexpr long long kBytesPerCycle = 40;       // of the L2 cache, weights too
constexpr long long kStoreBytesPerCycle = 12;  // a warpgroup's
constexpr long long kTileCycles = 1200, kTurnCycles = 200;
constexpr int kOverlap = 20;  // a twentieth of what is hidden behind something longer is not
// Of laying an input channels side by side ahead: reckoned; what was measured with it is faster than transposing.
constexpr long long kLaidBytesPerCycle = 14, kLayCycles = 5000;

// The chain before the convolution (chain_work.h), on its way into a stage and while laying: fitted to LeakyReLU, SiLU
// and Snake (8 x 128 x 3000 -> 1280, 4 x 96 x 220160 -> 96, H100).
constexpr long long kPreWork = 4, kPreWorkPerCycle = 70, kLaidWorkPerCycle = 400;

// Of sums in parts: what the kernel stores, element by element, and the pass that adds them: reckoned.
constexpr long long kPartBytesPerCycle = 4, kAddCycles = 6000;

// Results so short leave a tile nearly empty, and packing the weights takes longer than aten's convolution: reckoned.
constexpr long long kLeastLength = 16;

constexpr AtenReason kNoRoom(
    "the kernel reaches over more positions than two stages of the input have room for in shared memory");
constexpr AtenReason kShort("so few positions leave the tensor cores' tiles empty");
constexpr AtenReason kLong("the tensor-core kernels count positions and tiles up to 2^30");
constexpr AtenReason kGathered(
    "the input's rows begin in the middle of 16 bytes, and for such long sums of them it is faster");
constexpr AtenReason kGatheredPhases(
    "shared memory has no room for all phases of so wide a stride, and for such long sums it is faster than fetching "
    "element by element");
constexpr AtenReason kFewTiles("there are few tiles of long sums, which it splits");
constexpr AtenReason kProduct("one tap makes it a matrix product, whose operands BLAS reads as they lie");
constexpr AtenReason kFarTaps(
    "the input's rows begin in the middle of 16 bytes, and most that a tile reads of them lies beyond its positions");
constexpr const char* kResident =
    "auto: tensor cores, one tile of the input in shared memory for all taps, and all weights beside it";
constexpr const char* kStreamed =
    "auto: tensor cores, one tile of the input in shared memory for all taps, past which the weights stream";

constexpr bool transposes(DenseFetch fetch) { return fetch == DenseFetch::positions || fetch == DenseFetch::shifted; }

long long inputs_of_group(const Conv1dProblem& problem) { return problem.input_channels / problem.groups; }
long long outputs_of_group(const Conv1dProblem& problem) { return problem.channels / problem.groups; }

PackedOrder order_of(const Conv1dProblem& problem) {
  return packed_order(problem.channels, inputs_of_group(problem), problem.taps);
}

long long input_stage_bytes(const DensePlan& plan) {
  return round_up<long long>(1LL * plan.stage_rows * plan.order.row_bytes(), kTileAlignment);
}
long long fetched_bytes(const DensePlan& plan) {  // of a stage of the input
  return round_up<long long>(1LL * plan.stage_positions * plan.order.row_bytes(), kTileAlignment);
}
long long weight_stage_bytes(const DensePlan& plan) {
  return 1LL * plan.stage_taps * plan.tile().channels * plan.order.row_bytes();
}

// Groups of taps, as even as they come.
void set_stage_taps(DensePlan& plan) {
  const int taps = plan.phases.taps_of(0);
  const int most = max_of(1, kWeightStageBytes / (plan.tile().channels * plan.order.row_bytes()));
  plan.stage_taps = ceil_div(taps, ceil_div(taps, most));
}

// Stages and shared memory of a tile; `threads` stays 0 where they do not fit.
void set_stages(Conv1dPlan& plan, const DeviceProperties& device) {
  DensePlan& own = plan.dense;
  set_stage_taps(own);
  const long long beside = kDenseSharedBytes + dense_raw_bytes(own.fetch);
  const long long room = most_dynamic_shared_memory(device) - beside;
  const long long input = input_stage_bytes(own), weight = weight_stage_bytes(own);
  const auto set = [&](long long input_stages, long long weight_stages) {
    own.input_stages = static_cast<int>(input_stages);
    own.weight_stages = static_cast<int>(weight_stages);
    plan.threads = kDenseThreads;
    plan.depth = own.input_stages;
    plan.shared_memory = static_cast<int>(beside + input_stages * input + weight_stages * weight);
  };
  // A block that goes on to other output channels would have to fetch all weights anew.
  const long long all = own.weight_stages_of_tile();
  own.resident = own.channel_tiles == 1 && all <= kMostWeightStages && all * weight + kLeastStages * input <= room;
  if (own.resident) return set(min_of<long long>(kMostInputStages, (room - all * weight) / input), all);
  for (int stages = kMostInputStages; stages >= kLeastStages; --stages) {
    if (room < stages * input) continue;
    const long long weights = min_of((room - stages * input) / weight, 1LL * kMostWeightStages);
    if (weights >= (stages > kLeastStages ? kEnoughWeightStages : kLeastStages)) return set(stages, weights);
  }
}

// What the slowest block takes. In turn, a warpgroup stores while the other multiplies.
long long cycles(const Conv1dPlan& plan, const Conv1dProblem& problem) {
  const DensePlan& own = plan.dense;
  const DenseShape& tile = own.tile();
  const long long chunks = own.chunks_of_tile();
  const long long steps = chunks * own.order.taps * own.steps;
  const long long products = steps * (own.positions() / kBlock) * wgmma_cycles(tile.channels);
  const long long weights = own.resident ? 0 : 1LL * own.order.taps * tile.channels * own.order.row_bytes();
  const long long input = chunks * own.phases.stages() * fetched_bytes(own);
  const bool is_short = problem.length < 4 * own.positions();
  const int rate = input_bytes_per_cycle(own.fetch, problem.stride > 1, is_short);
  const long long elements = input / kHalfBytes;
  const bool has_pre = problem.pre_work > 0 && !own.lays_pre;
  const long long pre = has_pre ? elements * (kPreWork + problem.pre_work) / kPreWorkPerCycle : 0;
  const long long fetches = max_of(input / rate, (input + chunks * weights) / kBytesPerCycle);
  const long long channels = min_of<long long>(tile.channels, outputs_of_group(problem));
  const long long positions = min_of<long long>(own.positions(), problem.output_length);
  const bool in_parts = own.parts > 1;
  const long long stores = in_parts ? positions * channels * kSumBytes / kPartBytesPerCycle
                                    : positions * channels * kHalfBytes / kStoreBytesPerCycle;
  const long long tiles = ceil_div(own.tiles, plan.grid);
  const long long busy = max_of(products, fetches + pre) + min_of(products, fetches) / kOverlap;
  if (!own.alternates) return tiles * (busy + stores / 2 + kTileCycles);
  return tiles * max_of(busy + kTurnCycles, (products + stores + kTileCycles) / 2) + stores + kTileCycles;
}

// Whether a stage fits.
bool set_stage_rows(DensePlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const long long stride = problem.stride, positions = plan.positions();
  const bool together = plan.is_general && transposes(plan.fetch);
  const long long reach = (positions - 1) * stride + (problem.taps - 1LL) * problem.dilation + 1 + plan.shift;
  const long long rows =
      plan.is_general ? stage_rows(problem.taps, stride, problem.dilation, positions, together) : reach;
  if (rows * plan.order.row_bytes() > device.shared_memory_per_block) return false;
  // Rows that come from whole positions need no multiple of anything; those that are gathered come by eight.
  const int multiple = !plan.is_general ? kMatrixPositions : plan.fetch == DenseFetch::elements ? kPieceElements : 1;
  plan.stage_rows = static_cast<int>(round_up<long long>(rows, multiple));
  plan.stage_positions = together ? static_cast<int>(round_up<long long>(reach, kMatrixPositions)) : plan.stage_rows;
  plan.phases = dense_phases(problem.taps, static_cast<int>(stride), static_cast<int>(problem.dilation),
                             plan.positions(), together);
  return true;
}

Conv1dPlan plan_tile(const Conv1dProblem& problem, int shape, bool alternates, int parts,
                     const DeviceProperties& device) {
  Conv1dPlan plan;
  plan.method = "dense";
  plan.kernel = "dense";
  plan.which = Conv1dMethod::dense;
  plan.schedule = Schedule::bulk;
  DensePlan& own = plan.dense;
  own.shape = shape;
  own.alternates = alternates;
  own.order = order_of(problem);
  own.parts = parts;
  own.is_general = problem.stride > 1 || problem.groups > 1 || parts > 1;
  own.steps = own.order.chunk / kStep;
  if (own.is_general && own.order.chunks == 1 && ceil_div<long long>(inputs_of_group(problem), kStep) == 3)
    own.steps = 3;
  own.fetch = problem.fetch;
  if (own.fetch == DenseFetch::positions) {  // whose vectors begin at multiples of their length, whatever the padding
    own.shift = static_cast<int>((kPieceElements - problem.padding % kPieceElements) % kPieceElements);
  }
  if (!set_stage_rows(own, problem, device)) return plan;
  own.channel_tiles = parts * problem.groups * ceil_div<long long>(outputs_of_group(problem), own.tile().channels);
  own.position_tiles = ceil_div<long long>(problem.output_length, own.positions());
  own.tiles = problem.batch * own.channel_tiles * own.position_tiles;
  own.by_positions = problem.by_positions;
  set_stages(plan, device);
  plan.tile = own.positions() * own.tile().channels;
  plan.grid = min_of<long long>(own.tiles, device.multiprocessors);
  plan.resident_blocks = 1;
  plan.alignment = plan.copy_width = kWordBytes;
  plan.reason = own.resident ? kResident : kStreamed;
  if (!problem.is_packed) plan.workspace_bytes = own.order.bytes();
  if (parts > 1) own.sums_bytes = parts * kSumBytes * problem.batch * problem.channels * problem.output_length;
  plan.workspace_bytes += own.sums_bytes;
  return plan;
}

// Why aten's convolution is the faster one (policy.h), or null.
const char* slower_because(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const DensePlan& own = plan.dense;
  const long long sum = inputs_of_group(problem) * problem.taps;
  const long long steps = 1LL * own.order.chunks * problem.taps;
  const bool is_product = problem.taps == 1, gathers = own.fetch == DenseFetch::elements;
  if (gathers && problem.fetch == DenseFetch::elements && sum >= (is_product ? kMostGatheredProduct : kMostGatheredSum))
    return kGathered;
  if (own.is_general && own.fetch == DenseFetch::elements && sum >= kMostGatheredSum) return kGatheredPhases;
  // Not of interleaved results: BLAS would leave them to be spread. The limits here were not measured for those.
  const bool lies_for_blas = problem.stride == 1 && problem.groups == 1 && problem.fetch == DenseFetch::positions &&
                             problem.input_channels % kPieceElements == 0;
  const bool laid_for_a_product = own.lays_channels && !own.lays_pre && problem.fetch != DenseFetch::elements;
  if (is_product && !problem.interleaves && (lies_for_blas || laid_for_a_product)) return kProduct;
  const long long most_steps = is_product ? kMostStepsOfFewProducts : kMostStepsOfFewTiles;
  if (own.parts == 1 && 2 * own.tiles < device.multiprocessors && steps > most_steps) return kFewTiles;
  const long long own_positions = own.positions() * problem.stride;
  if (problem.fetch == DenseFetch::shifted && own.stage_positions > 2 * own_positions && sum >= kMostGatheredSum) {
    return kFarTaps;
  }
  return nullptr;
}

// 0 threads where no tile fits. Of tiles that are done at the same time the last, which is the largest.
Conv1dPlan fastest_tile(const Conv1dProblem& problem, int parts, const DeviceProperties& device) {
  Conv1dPlan best;
  for (bool alternates : {false, true}) {
    if (alternates && parts > 1) continue;  // which have different counts of chunks
    for (int shape = 0; shape < static_cast<int>(std::size(kDenseShapes)); ++shape) {
      if (problem.interleaves && !interleaves(kDenseShapes[shape])) continue;
      const Conv1dPlan plan = plan_tile(problem, shape, alternates, parts, device);
      if (plan.threads == 0) continue;
      if (best.threads == 0 || cycles(plan, problem) <= cycles(best, problem)) best = plan;
    }
  }
  return best;
}

// All that a plan takes behind its input.
long long all_cycles(const Conv1dPlan& plan, const Conv1dProblem& problem, const DeviceProperties& device) {
  const long long added = plan.dense.sums_bytes;
  return cycles(plan, problem) + (added > 0 ? kAddCycles + added / (kLaidBytesPerCycle * device.multiprocessors) : 0);
}

// The fastest tile, of a sum in parts where there are so few tiles that most multiprocessors would have none: as many
// parts as there can be, or as are tiles at the same time.
Conv1dPlan fastest_plan(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan best = fastest_tile(problem, /*parts=*/1, device);
  if (best.threads == 0 || 2 * best.dense.tiles > device.multiprocessors) return best;
  const int chunks = best.dense.order.chunks, most = problem.has_pre ? 1 : min_of(chunks, problem.most_parts);
  if (most < 2) return best;
  const auto in_parts = [&](int parts) {  // none of them empty
    return fastest_tile(problem, ceil_div(chunks, ceil_div(chunks, parts)), device);
  };
  const auto take_if_faster = [&](const Conv1dPlan& plan) {
    if (plan.threads > 0 && all_cycles(plan, problem, device) < all_cycles(best, problem, device)) best = plan;
  };
  const Conv1dPlan all = in_parts(most);
  take_if_faster(all);
  if (all.threads > 0 && all.dense.tiles > device.multiprocessors) {
    const long long tiles = all.dense.tiles / all.dense.parts;
    take_if_faster(in_parts(static_cast<int>(max_of(2LL, device.multiprocessors / tiles))));
  }
  return best;
}

// The fastest tile behind a pass that lays the input channels side by side; 0 threads where there is none.
Conv1dPlan plan_laid(const Conv1dProblem& problem, const DeviceProperties& device) {
  const bool has_pieces = problem.groups == 1 || inputs_of_group(problem) % kPieceElements == 0;
  if (problem.length == 0 || !has_pieces) return {};
  Conv1dProblem laid = problem;
  laid.fetch = DenseFetch::channels;
  laid.has_pre = false, laid.pre_work = 0;
  Conv1dPlan plan = fastest_plan(laid, device);
  if (plan.threads == 0) return plan;
  plan.dense.lays_channels = true;
  plan.dense.lays_pre = problem.has_pre;
  plan.workspace_bytes += LayParams::bytes(problem.batch, problem.input_channels, problem.length);
  return plan;
}

long long lay_cycles(const Conv1dProblem& problem, const DeviceProperties& device) {
  const long long bytes = LayParams::bytes(problem.batch, problem.input_channels, problem.length);
  const long long work = bytes / kHalfBytes * problem.pre_work;
  return kLayCycles + (2 * bytes / kLaidBytesPerCycle + work / kLaidWorkPerCycle) / device.multiprocessors;
}

}  // namespace

bool has_words(const Operand<3>& operand, const long long (&sizes)[3], int dimension) {
  if (operand.strides[dimension] != 1 || reinterpret_cast<std::uintptr_t>(operand.data) % kWordBytes != 0) return false;
  for (int d = 0; d < 3; ++d) {
    if (d != dimension && sizes[d] > 1 && operand.strides[d] % kPieceElements != 0) return false;
  }
  return true;
}

DenseFetch dense_fetch(const Conv1dParams& params) {
  const long long sizes[3] = {params.batch, params.dense.groups * params.dense.input_channels, params.length};
  if (params.dense.input_channels % kPieceElements == 0 && has_words(params.input, sizes, 1))
    return DenseFetch::channels;
  if (params.input.strides[2] != 1) return DenseFetch::elements;
  return params.length % kPieceElements == 0 && has_words(params.input, sizes, 2) ? DenseFetch::positions
                                                                                  : DenseFetch::shifted;
}

std::string describe(const DensePlan& plan) {
  const auto number = [](long long value) { return std::to_string(value); };
  const std::string weights = plan.resident ? "all weights"
                                            : number(plan.weight_stages) + " stages of " + number(plan.stage_taps) +
                                                  (plan.stage_taps == 1 ? " tap's weights" : " taps' weights");
  const std::string parts = plan.parts > 1 ? "; sums of " + number(plan.parts) +
                                                 " parts of the input channels, which the pass of the chain adds"
                                           : "";
  const std::string phases = plan.phases.stride == 1      ? ""
                             : plan.phases.are_together() ? " of all phases"
                                                          : " of a phase";
  return "tiles of " + number(plan.positions()) + " positions x " + number(plan.tile().channels) + " channels" +
         (plan.alternates ? ", two in turn; " : "; ") + number(plan.input_stages) + " stages of " +
         number(plan.order.chunk) + " input channels x " + number(plan.stage_rows) + " positions" + phases + " and " +
         weights + " in shared memory" +
         (plan.lays_channels ? "; the input is laid channels side by side in a workspace first" : "") +
         (plan.lays_pre ? ", with pre applied" : "") + parts;
}

Conv1dPlan plan_dense_as_it_lies(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  if (!transposes(problem.fetch) || problem.stride <= kMostTransposedStride) plan = fastest_plan(problem, device);
  if (plan.threads > 0 || !transposes(problem.fetch)) return plan;
  // What is fetched element by element needs no raw tiles.
  Conv1dProblem narrow = problem;
  narrow.fetch = DenseFetch::elements;
  return fastest_plan(narrow, device);
}

Conv1dPlan plan_dense(const Conv1dProblem& problem, const DeviceProperties& device) {
  Conv1dPlan plan;
  long long longest = max_of(problem.output_length + problem.padding, problem.length);
  if (problem.stride > 1) {  // the last tile's rows lie so far apart
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
    if (made.threads == 0) return kNoRoom;
    if (made.dense.tiles >= kMostPositions) return kLong;
    return slower_because(made, problem, device);
  };
  plan = plan_dense_as_it_lies(problem, device);
  const char* reason = reason_of(plan);
  if (problem.fetch != DenseFetch::channels || problem.has_pre) {
    const Conv1dPlan laid = plan_laid(problem, device);
    const char* const reason_of_laid = reason_of(laid);
    const auto is_faster = [&] {
      const long long time = all_cycles(laid, problem, device) + lay_cycles(problem, device);
      return plan.threads == 0 || time < all_cycles(plan, problem, device);
    };
    // One that aten does not beat goes before one that it does.
    if (laid.threads > 0 && ((reason == nullptr) == (reason_of_laid == nullptr) ? is_faster() : reason != nullptr)) {
      plan = laid, reason = reason_of_laid;
    }
  }
  if (reason != nullptr) refuse(plan, reason);
  return plan;
}

}  // namespace sluice
