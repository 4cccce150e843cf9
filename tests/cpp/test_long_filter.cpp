// The long filters' method: its plans, and its products on the host, lane by lane and register by register as the
// kernel's (multiply.cuh, finish.cuh) and the PTX manual's tables say. Numbers are random and count modulo 2^64, so
// that a tap that an output gets twice, or not, or at another input, shows.
#include <cstdint>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/conv1d/link.h"
#include "kernels/conv1d/long_filter/policy.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

using Number = std::uint64_t;
using Lanes = std::vector<std::vector<Number>>;  // a warp's values: [lane][i]

struct Filter {
  int dilation, shift, steps;
  std::vector<Number> input = {}, taps = {};  // the former: of a stage, from its first position on

  Number tap_at(int distance) const {
    const int k = distance / dilation;
    return distance >= 0 && k * dilation == distance && k < static_cast<int>(taps.size()) ? taps[k] : 0;
  }
};

struct Fragment {
  Number value[32][4][2];  // [lane][register][half]
};

// ldmatrix: lane 8 m + r names row r of matrix m, and lane l gets elements 2 (l % 4) and the next of row l / 4.
Fragment load_fragment(const Filter& filter, int u, int& furthest) {
  Fragment fragment{};
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int row = fragment_position(8 * matrix + lane / 4) + u * kStepPositions;
      CHECK(row % kVectorOutputs == 0);  // 16 bytes of half types
      for (int e = 0; e < 2; ++e) {
        const int position = row + lane % 4 * 2 + e;
        furthest = max_of(furthest, position);
        fragment.value[lane][matrix][e] = filter.input[position];
      }
    }
  }
  return fragment;
}

// mma.m16n8k16: a's registers are rows g and g + 8 of columns 2 t.., then of columns 8 + 2 t..; b's are rows 2 t.. and
// 8 + 2 t.. of column g; the sums are columns 2 t.. of row g, then of row g + 8. g = lane / 4, t = lane % 4.
void multiply(const Filter& filter, const Fragment& fragment, int step, int tile, Number (&sums)[32][kGroupTiles][4]) {
  Number a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][r / 2 * 8 + 2 * t + e] = fragment.value[lane][r][e];
      for (int r = 0; r < 2; ++r) {
        b[r * 8 + 2 * t + e][g] = filter.tap_at(tap_distance(lane, step, 2 * r + e, filter.shift));
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int m = 0; m < 16; ++m) sums[lane][tile][i] += a[row][m] * b[m][column];
    }
  }
}

// finish.cuh's exchange_pairs.
void swap_lanes(Lanes& values, int bit, int first, int second) {
  for (int lane = 0; lane < 32; ++lane) {
    if ((lane & bit) == 0) std::swap(values[lane][second], values[lane | bit][first]);
  }
}

// All outputs of the first group, by the lanes that store them.
std::vector<Number> outputs_of_group(const Filter& filter) {
  Number sums[32][kGroupTiles][4] = {};
  Fragment held[kHeldFragments] = {};
  int furthest = 0;
  for (int s = 0; s < min_of(kFragmentsApart, filter.steps); ++s) {
    for (int u = s; u < kHeldFragments; u += kFragmentsApart) held[u] = load_fragment(filter, u, furthest);
  }
  for (int step = 0; step < filter.steps; ++step) {
    for (int i = 0; i < kGroupTiles; ++i) {
      multiply(filter, held[(step + i * kFragmentsApart) % kHeldFragments], step, i, sums);
    }
    if (step + kFragmentsApart < filter.steps) {
      held[step % kHeldFragments] = load_fragment(filter, step + kHeldFragments, furthest);
    }
  }
  CHECK(furthest < window_positions(1, filter.steps));

  Lanes values(32, std::vector<Number>(kLaneSums));
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kLaneSums; ++i) values[lane][i] = sums[lane][sum_tile(i)][sum_register(i)];
  }
  std::vector<Number> before(kGroupOutputs), outputs(kGroupOutputs);
  std::set<int> written;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kLaneSums; ++i) before[sum_output(lane, i)] = values[lane][i];
  }
  for (int v = 0; v < kLaneSums; v += kVectorOutputs) {
    for (int i : {0, 1, 4, 5}) swap_lanes(values, 1, v + i, v + i + 2);
    for (int i : {0, 1, 2, 3}) swap_lanes(values, 2, v + i, v + i + 4);
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kLaneSums; ++i) {
      const int output = vector_output(lane, i / kVectorOutputs) + i % kVectorOutputs;
      outputs[output] = values[lane][i];
      CHECK(written.insert(output).second);
    }
  }
  CHECK(outputs == before && static_cast<int>(written.size()) == kGroupOutputs);
  return outputs;
}

Conv1dProblem long_filter(long long batch, long long channels, long long length, int taps) {
  Conv1dProblem problem = depthwise(batch, channels, length, taps, DType::bfloat16);
  problem.in_rows = true;
  problem.length = length, problem.padding = taps - 1;
  return problem;
}

}  // namespace

TEST(a_long_filters_products_give_every_output_every_tap_once) {
  std::mt19937_64 random(20);
  for (int taps : {1, 2, 5, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 255, 300, 511, 600}) {
    for (int dilation : {1, 2, 3, 7}) {
      const int reach = (taps - 1) * dilation + 1;
      if (reach > 1024) continue;
      for (int shift = 0; shift < kVectorOutputs; ++shift) {
        Filter filter{.dilation = dilation, .shift = shift, .steps = static_cast<int>(long_filter_steps(reach))};
        filter.input.resize(window_positions(1, filter.steps));
        filter.taps.resize(taps);
        for (Number& value : filter.input) value = random();
        for (Number& tap : filter.taps) tap = random();
        const std::vector<Number> outputs = outputs_of_group(filter);
        for (int o = 0; o < kGroupOutputs; ++o) {
          Number wanted = 0;
          for (int k = 0; k < taps; ++k) wanted += filter.taps[k] * filter.input[shift + o + k * dilation];
          CHECK(outputs[o] == wanted);
        }
        CHECK(shift + kGroupOutputs - 1 + reach <= window_positions(1, filter.steps));
      }
    }
  }
}

TEST(a_long_filters_plan_keeps_what_the_kernel_relies_on) {
  for (int capability : {80, 86, 90, 100}) {
    DeviceProperties device = kH200;
    device.compute_capability = capability;
    if (capability == 86)
      device.shared_memory_per_multiprocessor = 100 << 10, device.shared_memory_per_block = 99 << 10;
    for (int taps : {8, 31, 64, 128, 256, 512, 1024}) {
      for (long long length : {192, 277, 1000, 8192, 65536, 50000000}) {
        for (long long channels : {1, 3, 700}) {
          for (bool aligned : {false, true}) {
            Conv1dProblem problem = long_filter(2, channels, length, taps);
            problem.aligned = aligned;
            CHECK(suits_long_filter(problem, device));
            const Conv1dPlan plan = plan_conv1d(problem, {}, device, true);
            if (plan.which != Conv1dMethod::long_filter) {  // no room
              CHECK(capability == 86 && taps == 1024);
              continue;
            }
            const LongFilterPlan& own = plan.long_filter;
            CHECK(own.segment % kGroupOutputs == 0 && own.segment / kGroupOutputs <= 32);
            CHECK(own.segments_per_row * own.segment >= length + (aligned ? 0 : 7));
            CHECK((own.segments_per_row - 1) * own.segment < length + (aligned ? 0 : 7));
            CHECK(own.segments == 2 * channels * own.segments_per_row);
            CHECK(plan.grid * kLongFilterWarps * own.segments_per_warp >= own.segments);
            CHECK((plan.grid - 1) * kLongFilterWarps * own.segments_per_warp < own.segments);
            CHECK(plan.grid <= device.multiprocessors * plan.resident_blocks);
            const int window = window_positions(own.segment / kGroupOutputs, own.steps);
            CHECK(own.stage_words * kVectorOutputs >= window && own.steps * 16 >= taps + 14);
            CHECK(plan.depth >= 2 && plan.depth <= kMaxDepth);
            CHECK(plan.shared_memory ==
                  kLongFilterWarps * (plan.depth * own.stage_words * kWordBytes + (own.steps + 1) * kStepBytes));
            CHECK(plan.shared_memory <= most_dynamic_shared_memory(device));
          }
        }
      }
    }
  }
}

TEST(long_filters_are_taken_where_they_suit) {
  Conv1dProblem problem = long_filter(8, 768, 8192, 31);
  const auto method = [&](const ScheduleRequest& request = {}) {
    return plan_conv1d(problem, request, kH200, true).which;
  };
  CHECK(method() == Conv1dMethod::long_filter && plan_conv1d(problem, {}, kH200, false).which == method());
  CHECK(plan_conv1d(problem, {}, kH200, true).kernel == std::string_view("long_filter"));
  CHECK(method(forced(Schedule::direct)) == Conv1dMethod::depthwise);
  CHECK(method(forced(Schedule::primitives)) == Conv1dMethod::depthwise);
  CHECK(method({true, Schedule::direct, 3}) == Conv1dMethod::depthwise);  // of a ring
  const auto is_left = [&](auto&& change) {
    Conv1dProblem other = problem;
    change(other);
    return plan_conv1d(other, {}, kH200, true).which == Conv1dMethod::depthwise;
  };
  CHECK(is_left([](Conv1dProblem& p) { p.taps = 4; }) && is_left([](Conv1dProblem& p) { p.taps = 4000; }));
  CHECK(is_left([](Conv1dProblem& p) { p.dtype = DType::float32; }));
  CHECK(is_left([](Conv1dProblem& p) { p.in_rows = false; }) && is_left([](Conv1dProblem& p) { p.stride = 2; }));
  CHECK(is_left([](Conv1dProblem& p) { p.output_length = 7; }));
  CHECK(is_left([](Conv1dProblem& p) { p.dilation = 1LL << 40; }));
  CHECK(is_left([](Conv1dProblem& p) { p.length = 1LL << 31; }) && !is_left([](Conv1dProblem& p) { p.dilation = 9; }));
  CHECK(!is_left([](Conv1dProblem& p) { p.channels *= 3; }));
}
