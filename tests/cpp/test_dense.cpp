// The dense method's plans and the layout of its packed weights.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/operators/conv1d/cpu/pack.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/shared/common/architectures.h"
#include "kernels/shared/mma/tf32.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

Conv1dProblem in_dtype(Conv1dProblem problem, DType dtype) {
  problem.dtype = dtype;
  problem.allows_tf32 = dtype == DType::float32;
  return problem;
}

// Float32 without TF32.
Conv1dProblem in_full(Conv1dProblem problem) {
  problem.dtype = DType::float32;
  return problem;
}

Conv1dPlan planned(const Conv1dProblem& problem) { return plan_dense(problem, kH200); }

// Checks what the kernel relies on.
void check_plan(const Conv1dProblem& problem, const Conv1dPlan& plan) {
  const DensePlan& own = plan.dense;
  const DenseShape& tile = own.tile();
  CHECK(plan.threads == kDenseThreads && plan.schedule == Schedule::bulk);
  CHECK(plan.kernel == std::string_view(problem.interleaves ? kInterleavedKernel : name_of(kernel_of(own))));
  CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
  const int parts = problem.dtype == DType::float32 && !problem.allows_tf32 ? 2 : 1;
  CHECK(own.order.parts == parts);
  CHECK(parts == 1 || (!own.is_pingpong && tile.blocks * tile.channels / 2 <= kMostSplitSums));
  const long long input = parts * round_up(own.stage_rows * own.order.row_bytes(), kTileAlignment);
  const long long weight = 1LL * own.stage_taps * parts * tile.channels * own.order.row_bytes();
  CHECK(weight % kTileAlignment == 0);  // every stage begins at a swizzle atom
  const bool transposes = own.fetch == DenseFetch::positions;
  const int word = word_elements(problem.dtype);
  const int raw = dense_raw_bytes(own.fetch);
  CHECK(plan.shared_memory >= own.input_stages * input + own.weight_stages * weight + kDenseSharedBytes + raw);
  CHECK(own.input_stages >= 2 && own.input_stages <= kMostInputStages);
  CHECK(own.weight_stages >= 1 && own.weight_stages <= kMostWeightStages);
  CHECK(own.stage_rows % (own.map_copies > 0 ? kSwizzleRows : 16) == 0);
  CHECK(own.map_copies * own.map_rows == (own.map_copies > 0 ? own.stage_rows : 0));
  CHECK(own.stage_rows >= own.positions() + (problem.taps - 1) * problem.dilation + own.shift);
  CHECK(own.shift >= 0 && own.shift < word && (!transposes || (problem.padding + own.shift) % word == 0));
  CHECK(own.order.row_bytes() <= kWidestRow && own.order.element_bytes == static_cast<int>(size_of(problem.dtype)));
  CHECK(own.steps * 32 <= own.order.row_bytes());
  CHECK(own.position_tiles * own.positions() >= problem.output_length);
  CHECK(own.channel_tiles * tile.channels >= problem.channels);
  const int tap_stages = ceil_div(own.order.taps, own.stage_taps);
  if (own.resident) CHECK(own.weight_stages == tap_stages * own.order.k_blocks);
}

}  // namespace

namespace {

struct Found {
  std::set<int> shapes;
  std::set<std::string_view> kernels;
  int count = 0;

  void check(const Conv1dProblem& problem) {
    const Conv1dPlan plan = planned(problem);
    if (plan.threads == 0) return;
    ++count;
    shapes.insert(plan.dense.shape);
    kernels.insert(plan.kernel);
    check_plan(problem, plan);
    const long long converted =
        ToChannelsLastParams::bytes(problem.dtype, problem.batch, problem.input_channels, problem.length);
    CHECK(plan.workspace_bytes == plan.dense.order.bytes() + (plan.dense.converts_input ? converted : 0));
  }
};

Found plans_in(DType dtype, bool allows_tf32 = true) {
  Found found;
  for (long long input_channels : {1, 3, 16, 17, 32, 48, 64, 96, 100, 512, 2048}) {
    for (long long channels : {1, 8, 32, 64, 80, 96, 128, 200, 1280}) {
      for (long long length : {16, 100, 500, 5000, 200000}) {
        for (int taps : {1, 2, 3, 11, 65}) {
          for (long long dilation : {1, 5, 27}) {
            for (bool by_positions : {false, true}) {
              Conv1dProblem problem = in_dtype(dense(3, input_channels, channels, length, taps, dilation), dtype);
              problem.allows_tf32 = problem.allows_tf32 && allows_tf32;
              problem.by_positions = by_positions;
              if (by_positions) problem.fetch = DenseFetch::positions;
              found.check(problem);
            }
          }
        }
      }
    }
  }
  return found;
}

}  // namespace

TEST(dense_plans_keep_what_the_kernel_relies_on) {
  const Found halves = plans_in(DType::float16), single = plans_in(DType::float32);
  const Found split = plans_in(DType::float32, /*allows_tf32=*/false);
  CHECK(halves.count > 11000 && single.count > 5000 && split.count > 5000);
  CHECK(halves.shapes.size() == std::size(kDenseShapes));  // no tile is compiled needlessly
  CHECK(halves.kernels.size() == 2 && single.kernels == halves.kernels && split.kernels == halves.kernels);
}

TEST(dense_convolutions_that_do_not_fit_are_left_to_aten) {
  const auto reason = [](const Conv1dProblem& problem) {
    const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
    CHECK(plan.which == Conv1dMethod::aten && plan.threads == 0 && plan.workspace_bytes == 0);
    return std::string(plan.reason);
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(contains(reason(dense(2, 64, 64, 100000, 65, 1000)), "each as long as the kernel's reach"));
  CHECK(contains(reason(dense(2, 64, 64, 3, 1)), "so few positions"));
  CHECK(contains(reason(dense(1, 64, 64, 1LL << 31, 1)), "2^30"));
  Conv1dProblem problem = dense(2, 64, 64, 5000, 3);
  problem.dtype = DType::float64;
  CHECK(contains(reason(problem), "for float32 and half types"));
  problem.dtype = DType::float32;
  CHECK(planned(problem).threads > 0);
  Conv1dProblem few = in_full(dense(8, 64, 2, 200000, 3));  // tiles that are nearly empty
  few.fetch = DenseFetch::positions;
  CHECK(contains(reason(few), "cuDNN is faster in full float32"));
  CHECK(contains(reason(in_full(dense(2, 5, 64, 5000, 3))), "more exact on FMA units"));
  problem.allows_tf32 = true;
  CHECK(contains(reason(problem), "cuDNN is faster in TF32"));
  problem.is_chained = true;  // the kernel saves a pass
  CHECK(planned(problem).threads > 0);
  problem = dense(2, 64, 64, 5000, 3);
  problem.groups = 8, problem.channels = 32;
  CHECK(contains(reason(problem), "groups whose output channels are a multiple of 8"));
  problem.groups = 2, problem.channels = 72;
  CHECK(contains(reason(problem), "a multiple of 8"));
  problem.groups = 1, problem.channels = 64;
  DeviceProperties other = kH200;
  other.compute_capability = 100;
  CHECK(contains(choose_method(problem, ScheduleRequest{}, other).reason, "capabilities 8.x, 9.0 and 12.x"));
  const bool has_code = code_architecture(90) == "90a";
  CHECK((choose_method(problem, ScheduleRequest{}, kH200).method == Conv1dMethod::dense) == has_code);
}

TEST(dense_convolutions_for_which_aten_was_faster_are_left_to_it) {
  const auto reason = [](const Conv1dProblem& problem) {
    const Conv1dPlan plan = planned(problem);
    return plan.threads > 0 ? std::string() : std::string(plan.reason);
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Conv1dProblem problem = dense(8, 64, 64, 5000, 1);
  CHECK(reason(problem).empty());  // channels-last
  problem.fetch = DenseFetch::positions;
  CHECK(contains(reason(problem), "matrix product"));
  problem.input_channels = 63;
  CHECK(reason(problem).empty());
  problem.fetch = DenseFetch::elements;
  CHECK(reason(problem).empty());  // converted to channels-last first
  problem.input_channels = 80, problem.groups = 4;
  CHECK(contains(reason(problem), "not aligned to 16 bytes"));
  problem.taps = 3;
  CHECK(reason(problem).empty());
  CHECK(contains(reason(dense(2, 512, 64, 500, 65)), "few tiles with long sums"));
  CHECK(reason(dense(64, 5, 2, 100000, 1)).empty());
  problem = dense(64, 1024, 32, 3737, 56, 9);
  problem.fetch = DenseFetch::shifted;
  CHECK(contains(reason(problem), "most of a tile's input is halo"));
  problem.fetch = DenseFetch::positions;
  CHECK(reason(problem).empty());
}

TEST(pre_is_applied_by_the_conversion_where_many_tiles_would_apply_it) {
  const auto applies_pre_first = [](Conv1dProblem problem, int work) {
    problem.has_pre = true, problem.pre_work = work;
    const Conv1dPlan plan = planned(problem);
    CHECK(!plan.dense.applies_pre_first || plan.dense.converts_input);
    return plan.threads > 0 && plan.dense.applies_pre_first;
  };
  for (DenseFetch fetch : {DenseFetch::channels, DenseFetch::positions}) {
    Conv1dProblem problem = dense(8, 128, 1280, 3000, 3);
    problem.fetch = fetch;
    CHECK(applies_pre_first(problem, 30));
    problem.channels = 128;  // a tile's
    CHECK(!applies_pre_first(problem, 2));
  }
  // One tap: aten's where BLAS reads the result of a pass of the chain.
  Conv1dProblem product = dense(8, 64, 512, 5000, 1);
  product.fetch = DenseFetch::positions;
  CHECK(planned(product).threads == 0 && !applies_pre_first(product, 30));
  product.fetch = DenseFetch::shifted;
  CHECK(applies_pre_first(product, 30));
  // Splits do not apply `pre`.
  Conv1dProblem splits = dense(2, 512, 64, 500, 65);
  splits.may_split = true, splits.has_pre = true, splits.pre_work = 30;
  const DensePlan own = planned(splits).dense;
  CHECK(own.splits > 1 && own.applies_pre_first);
}

TEST(a_packed_weight_takes_no_workspace_and_changes_nothing_else) {
  Conv1dProblem problem = dense(4, 256, 256, 6896, 3);
  const Conv1dPlan at_call = planned(problem);
  problem.is_packed = true;
  const Conv1dPlan ahead = planned(problem);
  CHECK(at_call.workspace_bytes == 2 * 4 * 3 * 256 * 64 && ahead.workspace_bytes == 0);
  CHECK(ahead.dense.shape == at_call.dense.shape && ahead.shared_memory == at_call.shared_memory);
}

TEST(rows_of_positions_need_raw_tiles_or_go_element_by_element) {
  Conv1dProblem problem = dense(2, 64, 64, 20000, 9, 8);
  problem.fetch = DenseFetch::positions;
  CHECK(planned(problem).dense.fetch == DenseFetch::positions);
  int narrow = 0;
  for (long long dilation = 64; dilation < 512; dilation += 8) {
    problem = dense(2, 64, 64, 20000, 9, dilation);
    const bool fits = planned(problem).threads > 0;
    problem.fetch = DenseFetch::positions;
    const Conv1dPlan plan = plan_dense_unconverted(problem, kH200);
    CHECK((plan.threads > 0) == fits);
    narrow += fits && plan.dense.fetch == DenseFetch::elements;
  }
  CHECK(narrow > 0);
}

namespace {

template <class Bits>
PackParams pack_params(const std::vector<Bits>& weight, long long channels, long long input_channels, int taps,
                       std::vector<Bits>& packed) {
  PackParams params{};
  params.order = packed_order(channels, input_channels, taps, sizeof(Bits));
  packed.assign(params.order.elements(), static_cast<Bits>(-1));
  params.weight.data = const_cast<Bits*>(weight.data());
  params.weight.strides[0] = input_channels * taps, params.weight.strides[1] = taps, params.weight.strides[2] = 1;
  params.channels = channels, params.input_channels = input_channels;
  params.packed = packed.data();
  return params;
}

// Weight `i`, and what it is packed as. Of float32: denormals and normal numbers, three quarters of a unit to round up.
constexpr std::uint16_t given(std::uint16_t, std::size_t i) { return static_cast<std::uint16_t>(i + 1); }
constexpr std::uint32_t given(std::uint32_t, std::size_t i) {
  return static_cast<std::uint32_t>((i + 1) << 14 | 0x1800);
}
constexpr std::uint16_t rounded(std::uint16_t, std::size_t i) { return static_cast<std::uint16_t>(i + 1); }
constexpr std::uint32_t rounded(std::uint32_t, std::size_t i) {
  return static_cast<std::uint32_t>((i + 1) << 14 | 0x2000);
}

template <class Bits>
void check_packing(long long channels, long long input_channels, std::set<int>& row_bytes) {
  constexpr int kTaps = 3;
  std::vector<Bits> weight(channels * input_channels * kTaps), packed;
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = given(Bits{}, i);
  const PackParams params = pack_params(weight, channels, input_channels, kTaps, packed);
  const PackedOrder& order = params.order;
  row_bytes.insert(order.row_bytes());
  pack_cpu(params);
  std::size_t found = 0, zeros = 0;
  for (int k_block = 0; k_block < order.k_blocks; ++k_block) {
    for (int tap = 0; tap < kTaps; ++tap) {
      const std::size_t first = (static_cast<std::size_t>(k_block) * kTaps + tap) * order.rows * order.k_block;
      for (long long row = 0; row < order.rows; ++row) {
        for (int c = 0; c < order.k_block; ++c) {
          const auto byte = static_cast<std::uint32_t>((row * order.k_block + c) * sizeof(Bits));
          const Bits value = packed[first + swizzled(byte, order.row_bytes()) / sizeof(Bits)];
          const long long input_channel = k_block * order.k_block + c;
          const bool exists = row < channels && input_channel < input_channels;
          const long long index = (row * input_channels + input_channel) * kTaps + tap;
          CHECK(value == (exists ? rounded(Bits{}, index) : 0));
          ++(exists ? found : zeros);
        }
      }
    }
  }
  CHECK(found == weight.size() && found + zeros == packed.size());
}

bool is_nan(std::uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; }

}  // namespace

TEST(weights_are_packed_a_word_at_a_time) {
  std::set<int> halves, single;
  for (long long channels : {1, 8, 13, 40}) {
    for (long long input_channels : {1, 5, 16, 20, 32, 64, 100}) {
      check_packing<std::uint16_t>(channels, input_channels, halves);
      check_packing<std::uint32_t>(channels, input_channels, single);
    }
  }
  CHECK(halves == std::set({32, 64, 128}) && single == halves);
}

TEST(float32_is_rounded_to_the_nearest_tf32) {
  struct Pair {
    std::uint32_t bits, rounded;
  };
  for (const auto& [bits, wanted] : {
           Pair{0x3f800000, 0x3f800000},
           {0x3f800fff, 0x3f800000},
           {0x3f801001, 0x3f802000},
           Pair{0x3f801000, 0x3f802000},
           {0xbf801000, 0xbf802000},  // ties: away from zero, not to even
           Pair{0x3f803000, 0x3f804000},
           {0x3fffffff, 0x40000000},
           Pair{0x00000000, 0x00000000},
           {0x80000000, 0x80000000},
           Pair{0x00000001, 0x00000000},
           {0x00001000, 0x00002000},
           {0x807fffff, 0x80800000},  // denormal
           Pair{0x7f7fc99e, 0x7f7fc000},
           {0x7f7fefff, 0x7f7fe000},  // 3.4e38, and what is finite still
           Pair{0x7f7fffff, 0x7f800000},
           {0xff7fffff, 0xff800000},  // the largest: infinity
           Pair{0x7f800000, 0x7f800000},
           {0xff800000, 0xff800000},
       }) {
    CHECK(round_to_tf32(bits) == wanted);
  }
  for (std::uint32_t nan : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu, 0x7f801000u}) {
    CHECK(is_nan(round_to_tf32(nan)));
  }
  std::mt19937 random(sluice::test::seed());
  for (int n = 0; n < 10000; ++n) {
    const float value =
        std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random), static_cast<int>(n % 200) - 100);
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent);
    const auto wanted = static_cast<float>(std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11));
    CHECK(round_to_tf32(std::bit_cast<std::uint32_t>(value)) == std::bit_cast<std::uint32_t>(wanted));
  }
}

TEST(packed_float32_values_that_are_not_finite_stay_so) {
  const std::vector<std::uint32_t> weight = {0x00000001, 0x7f7fc99e, 0x7f7fffff, 0x7f800000, 0xff800000, 0xffc00001};
  std::vector<std::uint32_t> packed;
  pack_cpu(pack_params(weight, 1, static_cast<long long>(weight.size()), 1, packed));  // the swizzle leaves row 0
  const std::vector<std::uint32_t> first(packed.begin(), packed.begin() + 5);
  CHECK(first == std::vector<std::uint32_t>({0, 0x7f7fc000, 0x7f800000, 0x7f800000, 0xff800000}));
  CHECK(is_nan(packed[5]) && packed[6] == 0 && packed[7] == 0);
}
