// Chooses a convolution's method, and derives the methods' problem from its tensors.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "kernels/operators/conv1d/aten_reason.h"
#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/conv1d/dense/chain_work.h"
#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/shared/common/architectures.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/remembered.h"

namespace sluice {
namespace {

constexpr long long kLongestAdjacent = 1LL << 30;  // positions and rows: the few-tap kernels count in 32 bits

// With this many output channels of one input channel, tensor cores are several times faster.
constexpr long long kFilterBank = 8;

constexpr AtenReason kGroupsReason(
    "sluice's tensor-core kernels need groups whose output channels are a multiple of 8");
constexpr AtenReason kDtypeReason("sluice's tensor-core kernels are for float32 and half types");
constexpr AtenReason kDeviceReason(
    "sluice's tensor-core kernels are for compute capabilities 8.x, 9.0 and 12.x, and from 8.0 on where SLUICE_DENSE "
    "is "
    "portable");
constexpr AtenReason kCodeReason(
    "the library was built without code for this GPU, which is 90a on compute capability 9.0");
constexpr AtenReason kWantedReason("SLUICE_DENSE=torch leaves dense convolutions to torch");
constexpr int kPortableCapability = 80;  // has mma.sync of bfloat16 and TF32, and asynchronous copies
// Generations whose fastest tensor-core instruction is mma.sync, which torch's libraries have to use as well.
constexpr int kPortableGenerations[] = {8, 12};
// The only architecture with wgmma.
constexpr int kWgmmaCapability = 90;
constexpr std::string_view kWgmmaArchitecture = "90a";

bool is_word_aligned(const void* data, DType dtype) {
  const auto word = static_cast<std::uintptr_t>(word_elements(dtype) * size_of(dtype));
  return reinterpret_cast<std::uintptr_t>(data) % word == 0;
}

// Whether `width` channels of a position are an aligned vector of the input and of the output.
bool has_vectors(const Conv1dParams& params, int width) {
  const auto of = [width](const void* data, DType dtype, const long long* strides) {
    return reinterpret_cast<std::uintptr_t>(data) % (width * size_of(dtype)) == 0 && strides[0] % width == 0 &&
           strides[1] == 1 && strides[2] % width == 0;
  };
  return params.channels % width == 0 && of(params.input.data, params.input.dtype, params.input.strides) &&
         of(params.output.data, params.output.dtype, params.output.strides);
}

// Whether each row of the output has its input row's offset to a 16-byte word of the input's dtype.
bool equally_aligned(const Conv1dParams& params) {
  const long long width = word_elements(params.input.dtype);
  const auto element = [](const void* data, DType dtype) {
    return static_cast<long long>(reinterpret_cast<std::uintptr_t>(data) / size_of(dtype));
  };
  const long long apart =
      element(params.input.data, params.input.dtype) - element(params.output.data, params.output.dtype);
  const bool rows = params.multiplier == 1
                        ? (params.input.strides[1] - params.output.strides[1]) % width == 0
                        : params.input.strides[1] % width == 0 && params.output.strides[1] % width == 0;
  return rows && apart % width == 0 && (params.input.strides[0] - params.output.strides[0]) % width == 0;
}

}  // namespace

Conv1dProblem problem_of(const Conv1dParams& params) {
  // The channels-last kernel writes vectors of channels, each with its own input channel; anything else goes by rows,
  // whatever its strides.
  const bool channels_last = params.output.strides[1] == 1 && params.channels > 1 && params.multiplier == 1;
  const int width = word_elements(params.input.dtype);
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(params.output.data) % (width * size_of(params.output.dtype)) == 0 &&
      params.output.strides[0] % width == 0 && params.output.strides[1] % width == 0;
  const bool whole_words = params.input.strides[1] == 1 && is_word_aligned(params.input.data, params.input.dtype) &&
                           params.input.strides[0] % width == 0 && params.input.strides[2] % width == 0;
  const bool short_enough = max_of(params.length, params.output_length) + params.padding < kLongestAdjacent &&
                            params.batch * params.channels < kLongestAdjacent;
  const bool positions_adjacent = params.input.strides[2] == 1 && params.output.strides[2] == 1;
  const bool in_rows = !channels_last && positions_adjacent && params.weight.dtype == params.input.dtype;
  const bool in_channels = channels_last && params.input.strides[1] == 1 && params.weight.dtype == params.input.dtype &&
                           params.output.dtype == params.input.dtype;
  const bool is_dense = params.dense.input_channels > 0;
  const bool by_positions = params.interleave.exists() ? params.interleave.by_positions
                                                       : params.output.strides[1] != 1 || params.channels == 1;
  return {.batch = params.batch,
          .input_channels = params.channels / params.multiplier,
          .channels = params.channels,
          .groups = params.channels / params.multiplier,
          .output_length = params.output_length,
          .taps = params.taps,
          .stride = params.stride,
          .dilation = params.dilation,
          .length = params.length,
          .padding = params.padding,
          .dtype = params.input.dtype,
          .channels_last = channels_last,
          .aligned = aligned,
          .adjacent = short_enough && (channels_last ? has_vectors(params, kFewTapsChannels) : positions_adjacent),
          .equally_aligned = !channels_last && equally_aligned(params),
          .whole_words = whole_words,
          .one_span = channels_last && params.output.strides[2] == params.channels &&
                      size_of(params.output.dtype) <= kCollectedBytes,
          .pairs = channels_last && has_vectors(params, 2),
          .in_rows = in_rows,
          .in_channels = in_channels,
          .fetch = is_dense ? dense_fetch(params) : DenseFetch::elements,
          .by_positions = by_positions,
          .is_packed = params.dense.packed != nullptr,
          .allows_tf32 = params.dense.allows_tf32,
          .interleaves = params.interleave.exists(),
          .pre_work = is_dense ? chain_work(params.pre) : 0,
          .input_by_channels = params.input.strides[1] == 1,
          .input_by_positions = params.input.strides[2] == 1,
          .has_pre = !params.pre.empty(),
          .has_post = !params.post.empty(),
          .is_chained = !params.pre.empty() || !params.post.empty(),
          .has_tensors = params.post.operands > 0};
}

std::string describe(const Conv1dPlan& plan) {
  switch (plan.which) {
    case Conv1dMethod::dense: return describe(plan.dense);
    case Conv1dMethod::long_filter: return describe(plan.long_filter);
    case Conv1dMethod::fourier: return describe(plan.fourier);
    case Conv1dMethod::few_outputs: return describe(plan.few_outputs);
    default: return "";
  }
}

bool is_depthwise(const Conv1dProblem& problem, const ScheduleRequest& request) {
  if (problem.groups != problem.input_channels) return false;
  // One channel to many is depthwise by its sizes and a matrix product by its work: a filter bank, the first layer of a
  // speech model.
  const bool filter_bank = problem.input_channels == 1 && problem.channels >= kFilterBank;
  return !filter_bank || !request.automatic;
}

namespace {

// `portable`, `torch` or nothing.
std::string_view wanted_dense() {
  static const std::string_view wanted = [] {
    const char* const set = std::getenv("SLUICE_DENSE");
    return std::string_view(set == nullptr ? "" : set);
  }();
  return wanted;
}

// The code that would run on the device, if the library has it.
DenseCode suitable_code(const DeviceProperties& device) {
  const int capability = device.compute_capability;
  if (wanted_dense() == "torch") return DenseCode::none;
  if (forces_portable()) return capability >= kPortableCapability ? DenseCode::portable : DenseCode::none;
  if (capability == kWgmmaCapability) return DenseCode::wgmma;
  const auto generations = std::span(kPortableGenerations);
  const bool is_portable = std::ranges::find(generations, capability / 10) != generations.end();
  return is_portable ? DenseCode::portable : DenseCode::none;
}

const char* not_dense_because(const DeviceProperties& device) {
  if (wanted_dense() == "torch") return kWantedReason;
  return suitable_code(device) == DenseCode::none ? kDeviceReason : kCodeReason;
}

}  // namespace

bool forces_portable() { return wanted_dense() == "portable"; }

DenseCode dense_code(const DeviceProperties& device) {
  const DenseCode suitable = suitable_code(device);
  const std::string_view code = code_architecture(device.compute_capability);
  const bool has_code = suitable == DenseCode::wgmma ? code == kWgmmaArchitecture : !code.empty();
  return has_code ? suitable : DenseCode::none;
}

MethodChoice choose_method(const Conv1dProblem& problem, const ScheduleRequest& request,
                           const DeviceProperties& device) {
  if (is_depthwise(problem, request)) {
    const bool is_left_open = request.automatic && request.depth == 0;
    if (is_left_open && suits_fourier(problem, device)) return {Conv1dMethod::fourier, ""};
    const bool is_long = is_left_open && suits_long_filter(problem, device);
    return {is_long ? Conv1dMethod::long_filter : Conv1dMethod::depthwise, ""};
  }
  const auto aten = [](const char* reason) { return MethodChoice{Conv1dMethod::aten, reason}; };
  if (!request.automatic) return aten(kForcedReason);
  if (!suits_dense_groups(problem.groups, problem.channels)) return aten(kGroupsReason);
  if (problem.dtype == DType::float64) return aten(kDtypeReason);
  if (suits_few_outputs(problem, device)) return {Conv1dMethod::few_outputs, ""};
  const DenseCode code = dense_code(device);
  return code == DenseCode::none ? aten(not_dense_because(device)) : MethodChoice{Conv1dMethod::dense, ""};
}

Conv1dPlan aten_plan(const char* reason) {
  Conv1dPlan plan;
  plan.method = "aten";
  plan.kernel = "convolution";
  plan.reason = reason;
  return plan;
}

namespace {

Conv1dPlan make_plan(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                     bool linked) {
  const MethodChoice choice = choose_method(problem, request, device);
  Conv1dPlan aten = aten_plan(choice.reason);
  if (min_of(min_of(problem.batch, problem.channels), problem.output_length) < 1) {
    refuse(aten, kNoElements);
    return aten;
  }
  if (choice.method == Conv1dMethod::aten) return aten;
  if (choice.method == Conv1dMethod::fourier) return plan_fourier(problem, device);
  if (choice.method == Conv1dMethod::few_outputs) return plan_few_outputs(problem, device);
  if (choice.method == Conv1dMethod::long_filter) {
    const Conv1dPlan plan = plan_long_filter(problem, device);
    if (plan.threads > 0) return plan;  // else as if its method were depthwise
  }
  Conv1dPlan plan = choice.method == Conv1dMethod::dense ? plan_dense(problem, device)
                                                         : plan_depthwise(problem, request, device, linked);
  if (plan.threads > 0 || !request.automatic) return plan;
  aten.reason = plan.reason;  // no kernel fits, and none was requested
  return aten;
}

// All that a plan depends on.
struct PlanKey {
  Conv1dProblem problem;
  ScheduleRequest request;
  DeviceProperties device;
  bool linked = false;

  bool operator==(const PlanKey&) const = default;
};

}  // namespace

Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                       bool linked) {
  const std::size_t hash =
      hash_of(problem.batch, problem.input_channels, problem.channels, problem.output_length, problem.taps,
              problem.stride, problem.dilation, static_cast<int>(problem.dtype), static_cast<int>(problem.fetch));
  return remembered<Conv1dPlan, PlanKey>(PlanKey{problem, request, device, linked}, hash,
                                         [&] { return make_plan(problem, request, device, linked); });
}

}  // namespace sluice
