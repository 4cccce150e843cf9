// The long filters' method: its plans, and its products on the host, lane by lane and register by register as the
// kernel (multiply.cuh, finish.cuh) and the PTX manual's tables say. Numbers are random modulo 2^64, so that
// an output with a missing, repeated or misplaced tap is found.
#include <array>
#include <cstdint>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/operators/conv1d/link.h"
#include "kernels/operators/conv1d/long_filter/policy.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

using Number = std::uint64_t;

struct Filter {
  int dilation, shift, steps;
  std::vector<Number> input = {}, taps = {};  // `input`: of a stage, from its first position on

  Number tap_at(int distance) const {
    const int k = distance / dilation;
    return distance >= 0 && k * dilation == distance && k < static_cast<int>(taps.size()) ? taps[k] : 0;
  }
  // Stored like fetch.cuh's fetch_taps, in elements of two bytes.
  std::vector<Number> two_copies() const {
    std::vector<Number> memory(tap_bytes(steps) / 2);
    for (int i = 0; i < tap_copy_elements(steps); ++i) {
      memory[i] = tap_at(i - kTapsFront);
      memory[tap_copy_bytes(steps) / 2 + i + 1] = tap_at(i - kTapsFront);
    }
    return memory;
  }
};

struct Matrices {
  Number value[32][4][2];  // [lane][register][half]
};
using Share = std::array<Number, 4>;  // a lane's elements of a step of T
struct Sums {
  Number value[32][kTilesPerWarp][4] = {};
};

// ldmatrix: lane 8 m + r names row r of matrix m, and lane l gets elements 2 (l % 4) and the next of row l / 4.
template <class RowOf>
Matrices load_matrices(const std::vector<Number>& input, RowOf&& row_of) {
  Matrices matrices{};
  for (int lane = 0; lane < 32; ++lane) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int row = row_of(8 * matrix + lane / 4);
      CHECK(row % kVectorOutputs == 0);  // 16 bytes of half types
      for (int e = 0; e < 2; ++e) matrices.value[lane][matrix][e] = input.at(row + lane % 4 * 2 + e);
    }
  }
  return matrices;
}

// mma.m16n8k16: a's registers are rows g and g + 8 of columns 2 t.., then of columns 8 + 2 t..; b's are rows 2 t.. and
// 8 + 2 t.. of column g; the sums are columns 2 t.. of row g, then of row g + 8. g = lane / 4, t = lane % 4.
template <class ShareOf>
void multiply(const Matrices& rows, ShareOf&& share_of, int tile, Sums& sums) {
  Number a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    const Share share = share_of(lane);
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][r / 2 * 8 + 2 * t + e] = rows.value[lane][r][e];
      for (int r = 0; r < 2; ++r) b[r * 8 + 2 * t + e][g] = share[2 * r + e];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int m = 0; m < 16; ++m) sums.value[lane][tile][i] += a[row][m] * b[m][column];
    }
  }
}

// multiply.cuh's multiply_few.
Sums few_steps(const Filter& filter, int tiles) {
  Sums sums;
  for (int step = 0; step < filter.steps; ++step) {
    const auto share = [&](int lane) {
      Share own;
      for (int i = 0; i < 4; ++i) own[i] = filter.tap_at(tap_distance(lane, step, i, filter.shift));
      return own;
    };
    for (int tile = 0; tile < tiles; ++tile) {
      const auto row = [&](int lane) { return tile_position(lane) + step * kStepPositions + tile * kTileOutputs; };
      multiply(load_matrices(filter.input, row), share, tile, sums);
    }
  }
  return sums;
}

Share shared_pairs(const std::vector<Number>& taps, int lane, int shift, int step, int steps) {
  const int byte = tap_pair_byte(lane, shift, steps) + step * 32;
  CHECK(byte % 4 == 0 && byte >= 0);
  return {taps.at(byte / 2), taps.at(byte / 2 + 1), taps.at(byte / 2 + 8), taps.at(byte / 2 + 9)};
}

// multiply_many: a window of fragments, two loaded at a time.
Sums many_steps(const Filter& filter) {
  Sums sums;
  const std::vector<Number> taps = filter.two_copies();
  Matrices held[kHeldFragments / 2];
  const auto load = [&](int first, int fragment) {
    held[first / 2] =
        load_matrices(filter.input, [&](int lane) { return fragment_position(lane) + fragment * kStepPositions; });
  };
  for (int u = 0; u < kHeldFragments; u += 2) load(u, u);
  int left = filter.steps;
  for (int step = 0; left > 0; step += 2) {
    for (int i = step; i < step + 2; ++i) {
      for (int tile = 0; tile < kTilesPerWarp; ++tile) {
        const int upper = (i + 2 * tile * kFragmentsApart) % kHeldFragments;
        const int lower = (upper + kFragmentsApart) % kHeldFragments, half = i % 2 * 2;
        Matrices rows;
        for (int lane = 0; lane < 32; ++lane) {
          for (int e = 0; e < 2; ++e) {
            for (int r = 0; r < 4; ++r) {
              rows.value[lane][r][e] = held[(r % 2 == 0 ? upper : lower) / 2].value[lane][half + r / 2][e];
            }
          }
        }
        multiply(rows, [&](int lane) { return shared_pairs(taps, lane, filter.shift, i, filter.steps); }, tile, sums);
      }
    }
    (void)shared_pairs(taps, 31, filter.shift, step + 2, filter.steps);  // loaded ahead
    left -= 2;
    if (left > kFragmentsApart - 2) load(step % kHeldFragments, step + kHeldFragments);
  }
  return sums;
}

// finish.cuh: pairs without an exchange, and vectors after four lanes exchanged their sums.
std::vector<Number> outputs_of(const Sums& sums) {
  std::vector<std::vector<Number>> values(32, std::vector<Number>(kLaneSums));
  std::vector<Number> pairs(kOutputsPerWarp), vectors(kOutputsPerWarp);
  std::set<int> written;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kLaneSums; ++i) {
      values[lane][i] = sums.value[lane][i / 4][i % 4];
      CHECK(sum_output(lane, i) == i / 2 * kOutputsPerQuarter + lane * 2 + i % 2);
      pairs[sum_output(lane, i)] = values[lane][i];
    }
  }
  const auto swap_lanes = [&](int bit, int first, int second) {
    for (int lane = 0; lane < 32; ++lane) {
      if ((lane & bit) == 0) std::swap(values[lane][second], values[lane | bit][first]);
    }
  };
  for (int i : {0, 1, 4, 5}) swap_lanes(1, i, i + 2);
  for (int i : {0, 1, 2, 3}) swap_lanes(2, i, i + 4);
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < kLaneSums; ++i) {
      vectors[vector_output(lane) + i] = values[lane][i];
      CHECK(written.insert(vector_output(lane) + i).second);
    }
  }
  CHECK(vectors == pairs && static_cast<int>(written.size()) == kOutputsPerWarp);
  return pairs;
}

Filter random_filter(std::mt19937_64& random, int taps, int dilation, int shift, int steps, int outputs) {
  Filter filter{.dilation = dilation, .shift = shift, .steps = steps};
  filter.input.resize(window_positions(outputs, steps));
  filter.taps.resize(taps);
  for (Number& value : filter.input) value = random();
  for (Number& tap : filter.taps) tap = random();
  return filter;
}

void check_outputs(const Filter& filter, const std::vector<Number>& outputs, int count) {
  for (int o = 0; o < count; ++o) {
    Number wanted = 0;
    for (int k = 0; k < static_cast<int>(filter.taps.size()); ++k) {
      wanted += filter.taps[k] * filter.input.at(filter.shift + o + k * filter.dilation);
    }
    CHECK(outputs[o] == wanted);
  }
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
      const int reach = (taps - 1) * dilation + 1, steps = static_cast<int>(long_filter_steps(reach));
      if (reach > 1024) continue;
      CHECK(steps <= kFewSteps || steps % 2 == 0);
      for (int shift = 0; shift < kVectorOutputs; ++shift) {
        for (int tiles = steps <= kFewSteps ? 1 : kTilesPerWarp; tiles <= kTilesPerWarp; ++tiles) {
          const Filter filter = random_filter(random, taps, dilation, shift, steps, tiles * kTileOutputs);
          const Sums sums = steps <= kFewSteps ? few_steps(filter, tiles) : many_steps(filter);
          check_outputs(filter, outputs_of(sums), tiles * kTileOutputs);
        }
      }
    }
  }
}

TEST(a_stage_has_each_word_from_one_place) {
  std::mt19937 random(21);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  for (int i = 0; i < 20000; ++i) {
    const int length = draw(1, 300), words = draw(1, 60), start = draw(-500, 400);
    const int known_from = draw(0, 1) == 0 ? 0 : -draw(1, 400);
    const StageWords of = stage_words(start, words, length, known_from);
    CHECK(0 <= of.known && of.known <= of.own && of.own <= of.own_end && of.own_end <= of.known_end);
    CHECK(of.known_end <= words);
    for (int w = 0; w < words; ++w) {
      const int first = start + 8 * w;
      if (w < of.known || w >= of.known_end) {
        CHECK(first + 8 <= known_from || first >= length);  // zeros
      } else if (of.own <= w && w < of.own_end) {
        CHECK(first >= 0 && first + 8 <= length);  // copied
      }
    }
  }
}

// long_filter_channels.cuh: words of 8 channels to rows of positions, the products of each, and back.
TEST(channels_are_turned_multiplied_and_turned_back) {
  std::mt19937_64 random(22);
  for (int taps : {1, 9, 16, 31, 57, 64, 200, 300}) {
    const int steps = static_cast<int>(long_filter_channel_steps(taps));
    for (int outputs : {kTileOutputs, kOutputsPerWarp}) {
      const int positions = window_positions(outputs, steps), row_bytes = transposed_row_bytes(positions);
      std::vector<Number> column(positions * 8), rows(8 * row_bytes / 2), back(outputs * 8);
      for (Number& value : column) value = random();
      const auto element = [](const std::vector<Number>& from, int row_byte, int lane) {
        CHECK(row_byte % 16 == 0);
        return from.at(row_byte / 2 + lane / 4);
      };
      // ldmatrix.trans: lane l gets of column l / 4 rows 2 (l % 4) and the next.
      for (int i = 0; i < positions; i += 16) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int m = 0; m < 2; ++m) {
            for (int e = 0; e < 2; ++e) {
              const int row = i * 16 + transposed_load_byte(8 * m + lane % 4 * 2 + e);
              rows.at((transposed_store_byte(lane, positions) + i * 2 + m * 16) / 2 + e) = element(column, row, lane);
            }
          }
        }
      }
      for (int c = 0; c < 8; ++c) {
        Filter filter = random_filter(random, taps, 1, 0, steps, outputs);
        for (int p = 0; p < positions; ++p) {
          filter.input[p] = rows.at(c * row_bytes / 2 + p);
          CHECK(filter.input[p] == column[p * 8 + c]);
        }
        Sums sums;
        const std::vector<Number> copies = filter.two_copies();
        for (int step = 0; step < steps; ++step) {
          const auto share = [&](int lane) { return shared_pairs(copies, lane, 0, step, steps); };
          for (int tile = 0; tile < outputs / kTileOutputs; ++tile) {
            const auto row = [&](int lane) {
              return tile_position(lane) + step * kStepPositions + tile * kTileOutputs;
            };
            multiply(load_matrices(filter.input, row), share, tile, sums);
          }
        }
        const std::vector<Number> results = outputs_of(sums);
        check_outputs(filter, results, outputs);
        for (int o = 0; o < outputs; ++o) rows.at(c * row_bytes / 2 + o) = column[o * 8 + c] = results[o];
      }
      for (int i = 0; i < outputs; i += 32) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int m = 0; m < 4; ++m) {
            for (int e = 0; e < 2; ++e) {
              const int row = i * 2 + word_load_byte(8 * m + lane % 4 * 2 + e, positions);
              back.at((i * 16 + word_store_byte(lane) + m * 128) / 2 + e) = element(rows, row, lane);
            }
          }
        }
      }
      for (int o = 0; o < outputs * 8; ++o) CHECK(back[o] == column[o]);
    }
  }
}

TEST(a_long_filters_plan_keeps_what_the_kernel_relies_on) {
  for (int capability : {80, 86, 90, 100}) {
    DeviceProperties device = kH200;
    device.compute_capability = capability;
    if (capability == 86)
      device.shared_memory_per_multiprocessor = 100 << 10, device.shared_memory_per_block = 99 << 10;
    for (int taps : {8, 31, 64, 128, 256, 512, 1024, 2048, 4096}) {
      for (long long length : {77, 128, 192, 277, 1000, 8192, 65536, 50000000}) {
        for (long long channels : {1, 3, 700}) {
          for (bool aligned : {false, true}) {
            Conv1dProblem problem = long_filter(2, channels, length, taps);
            problem.aligned = aligned;
            CHECK(suits_long_filter(problem, device) == (length >= 128));
            if (length < 128) continue;
            const Conv1dPlan plan = plan_conv1d(problem, {}, device, true);
            if (plan.which == Conv1dMethod::fourier) continue;  // faster
            if (plan.which != Conv1dMethod::long_filter) {      // does not fit
              CHECK(capability == 86 && taps >= 2048);
              continue;
            }
            const LongFilterPlan& own = plan.long_filter;
            const bool few = own.which == LongFilterKernel::long_filter;
            CHECK(few == (own.steps <= kFewSteps) && (few || own.which == LongFilterKernel::long_filter_many_steps));
            CHECK(own.team == 1 || (own.team == kLongFilterWarps && !few));
            const int teams = kLongFilterWarps / own.team, wave = device.multiprocessors * plan.resident_blocks;
            const long long outputs = length + (aligned ? 0 : 7);
            CHECK(own.segment % kOutputsPerWarp == 0 && own.segment / kOutputsPerWarp <= 32);
            CHECK(own.segments_per_row * own.segment >= outputs && (own.segments_per_row - 1) * own.segment < outputs);
            CHECK(own.segments == 2 * channels * own.segments_per_row);
            CHECK(plan.grid * teams * own.segments_per_team + own.longer_teams == own.segments);
            CHECK(own.longer_teams < plan.grid * teams && plan.grid <= (own.segments_per_team < 15 ? 1 : 8) * wave);
            const long long made = min_of<long long>(own.segment, round_up<long long>(outputs, outputs_at_once(few)));
            CHECK(own.stage_words * kVectorOutputs == window_positions(static_cast<int>(made), own.steps));
            CHECK(own.steps * 16 >= taps + 14 && plan.depth >= 2 && plan.depth <= kMaxDepth);
            CHECK(plan.shared_memory ==
                  teams * (plan.depth * own.stage_words * kWordBytes + (few ? 0 : tap_bytes(own.steps))));
            CHECK(plan.shared_memory <= most_dynamic_shared_memory(device));
          }
        }
      }
    }
  }
}

TEST(a_channels_last_filters_plan_keeps_what_the_kernel_relies_on) {
  for (int taps : {16, 31, 64, 128, 255, 512}) {
    for (long long length : {48, 77, 128, 129, 1000, 100000}) {
      for (long long channels : {16, 33, 768, 20000}) {
        for (bool whole_words : {false, true}) {
          Conv1dProblem problem = long_filter(3, channels, length, taps);
          problem.in_rows = false;
          problem.channels_last = problem.in_channels = true;
          problem.whole_words = whole_words;
          const Conv1dPlan plan = plan_conv1d(problem, {}, kH200, true);
          const LongFilterPlan& own = plan.long_filter;
          CHECK((plan.which == Conv1dMethod::long_filter) == (whole_words || taps > 128));
          if (plan.which != Conv1dMethod::long_filter) continue;
          CHECK(own.which == LongFilterKernel::long_filter_channels);
          CHECK(own.segment == (length <= kTileOutputs ? kTileOutputs : kOutputsPerWarp));
          CHECK(own.segments_per_row * kOutputsPerWarp >= length && own.channel_blocks * 32 >= channels);
          CHECK((own.segments_per_row - 1) * kOutputsPerWarp < length && (own.channel_blocks - 1) * 32 < channels);
          CHECK(own.segments == 3 * own.segments_per_row * own.channel_blocks);
          CHECK(own.stage_positions == own.segment + own.steps * 16 && own.steps * 16 >= taps + 7);
          CHECK(own.stage_words * kWordBytes == 4 * word_column_bytes(own.stage_positions));
          const int wave = kH200.multiprocessors * plan.resident_blocks;
          CHECK(plan.grid <= own.segments && plan.grid <= (own.segments / plan.grid < 16 ? 1 : 8) * wave);
          CHECK(plan.grid == own.segments || plan.grid % own.channel_blocks == 0 || plan.grid < own.channel_blocks);
          CHECK(plan.shared_memory == plan.depth * own.stage_words * kWordBytes +
                                          kLongFilterWarps * transposed_bytes(own.stage_positions, own.steps));
          CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200) && plan.resident_blocks >= 1);
          CHECK(plan.copy_width == (whole_words ? 16 : 2));
          problem.has_tensors = true;
          CHECK(plan_conv1d(problem, {}, kH200, true).which == Conv1dMethod::depthwise);
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
  CHECK(method({true, Schedule::direct, 3}) == Conv1dMethod::depthwise);  // the depth of a ring
  const auto is_left = [&](auto&& change) {
    Conv1dProblem other = problem;
    change(other);
    return plan_conv1d(other, {}, kH200, true).which == Conv1dMethod::depthwise;
  };
  CHECK(is_left([](Conv1dProblem& p) { p.taps = 4; }) &&
        is_left([](Conv1dProblem& p) { p.taps = 5000, p.dilation = 2; }));
  CHECK(is_left([](Conv1dProblem& p) { p.dtype = DType::float32; }));
  CHECK(is_left([](Conv1dProblem& p) { p.in_rows = false; }) && is_left([](Conv1dProblem& p) { p.stride = 2; }));
  CHECK(is_left([](Conv1dProblem& p) { p.output_length = 7; }));
  CHECK(is_left([](Conv1dProblem& p) { p.output_length = 127; }));
  CHECK(!is_left([](Conv1dProblem& p) { p.output_length = 128, p.taps = 5; }));
  CHECK(is_left([](Conv1dProblem& p) { p.dilation = 1LL << 40; }));
  CHECK(is_left([](Conv1dProblem& p) { p.length = 1LL << 31; }) && !is_left([](Conv1dProblem& p) { p.dilation = 9; }));
  CHECK(!is_left([](Conv1dProblem& p) { p.channels *= 3; }));
}
