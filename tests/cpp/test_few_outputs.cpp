// The method for few output channels: its products on the host, register for register, and its plans.
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/operators/conv1d/few_outputs/policy.h"
#include "kernels/operators/conv1d/link.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

// A layer from `channels_in` channels, whose rows or positions are aligned where they are whole words.
Conv1dProblem layer(long long batch, long long channels_in, long long channels, long long length, int taps,
                    bool by_positions, long long dilation = 1) {
  const bool whole = (by_positions ? length : channels_in) % 8 == 0;
  const DenseFetch fetch = by_positions ? (whole ? DenseFetch::positions : DenseFetch::shifted)
                                        : (whole ? DenseFetch::channels : DenseFetch::elements);
  Conv1dProblem problem = dense(batch, channels_in, channels, length, taps, dilation);
  problem.fetch = fetch;
  problem.by_positions = problem.input_by_positions = by_positions;
  problem.input_by_channels = !by_positions;
  return problem;
}

using Fragment = float[32][4][2];  // [lane][register][half]

// mma.sync.m16n8k16: sums += a b, of whole matrices in the lanes' registers (mma_sync.cuh).
void multiply(float (&sums)[32][4], const Fragment& a, const Fragment& b) {
  float left[16][16], right[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int e = 0; e < 2; ++e) left[g + r % 2 * 8][t * 2 + e + r / 2 * 8] = a[lane][r][e];
    }
    for (int r = 0; r < 2; ++r) {
      for (int e = 0; e < 2; ++e) right[t * 2 + e + r * 8][g] = b[lane][r][e];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) sums[lane][i] += left[row][k] * right[k][column];
    }
  }
}

struct WarpProblem {
  int input_channels, columns;
  std::vector<float> x, w;  // [channel][64 positions], [column][channel]
};

// P as a warp computes it: words of the input, fragments of the weights, and stores of the sums.
std::vector<float> products_of_warp(const WarpProblem& p, bool by_positions, int columns) {
  std::vector<float> result(static_cast<std::size_t>(columns) * kSumPitch, NAN);
  const int tiles = columns / (by_positions ? 16 : 8), position_tiles = by_positions ? 8 : 4;
  std::vector<float[32][4]> sums(static_cast<std::size_t>(tiles * position_tiles));
  for (auto& tile : sums) {
    for (auto& lane : tile) lane[0] = lane[1] = lane[2] = lane[3] = 0;
  }
  for (int k_block = 0; k_block < few_outputs_k_blocks(p.input_channels); ++k_block) {
    static float words[32][kFewOutputsWords][8], weights[kMostColumns / 8][32][8];
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < kFewOutputsWords; ++i) {
        for (int e = 0; e < 8; ++e) {
          const int position = word_position(by_positions, lane, i) + (by_positions ? e : 0);
          const int channel =
              k_block * kFewOutputsChannels + word_channel(by_positions, lane, i) + (by_positions ? 0 : e);
          const bool exists = channel < p.input_channels;
          words[lane][i][e] = exists ? p.x[static_cast<std::size_t>(channel * kWarpPositions + position)] : 0.0f;
        }
      }
      for (int f = 0; f < fragments_of_k_block(columns); ++f) {
        for (int e = 0; e < 8; ++e) {
          const WeightFragment at = weight_fragment(by_positions, columns, f, lane, e);
          const int channel = k_block * kFewOutputsChannels + at.channel;
          const bool exists = at.column < p.columns && channel < p.input_channels;
          weights[f][lane][e] = exists ? p.w[static_cast<std::size_t>(at.column * p.input_channels + channel)] : 0.0f;
        }
      }
    }
    Fragment a, b;
    for (int step = 0; step < 2; ++step) {
      for (int tile = 0; tile < tiles; ++tile) {
        for (int m = 0; m < position_tiles; ++m) {
          for (int lane = 0; lane < 32; ++lane) {
            for (int r = 0; r < 4; ++r) {
              for (int e = 0; e < 2; ++e) {
                if (by_positions) {
                  a[lane][r][e] = weights[step * tiles + tile][lane][2 * r + e];
                  if (r < 2) b[lane][r][e] = words[lane][step * 4 + 2 * r + e][m];
                } else {
                  a[lane][r][e] = words[lane][2 * m + r % 2][2 * (2 * step + r / 2) + e];
                  if (r < 2) b[lane][r][e] = weights[tile][lane][2 * (2 * step + r) + e];
                }
              }
            }
          }
          multiply(sums[static_cast<std::size_t>(m * tiles + tile)], a, b);
        }
      }
    }
  }
  // The same as store_sums.
  for (int tile = 0; tile < tiles; ++tile) {
    for (int m = 0; m < position_tiles; ++m) {
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; ++i) {
          const int column = by_positions ? tile * 16 + i / 2 * 8 + g : tile * 8 + t * 2 + i % 2;
          const int position = by_positions ? t * 16 + i % 2 * 8 + m : m * 16 + i / 2 * 8 + g;
          result[static_cast<std::size_t>(column * kSumPitch + position)] =
              sums[static_cast<std::size_t>(m * tiles + tile)][lane][i];
        }
      }
    }
  }
  return result;
}

}  // namespace

TEST(a_few_outputs_products_are_sums_over_all_channels) {
  std::mt19937 random(7);
  const auto integer = [&] { return static_cast<float>(static_cast<int>(random() % 9) - 4); };
  for (bool by_positions : {false, true}) {
    for (int columns : {1, 7, 16, 17, 32}) {
      for (int input_channels : {8, 9, 31, 32, 33, 96, 100}) {
        WarpProblem p{input_channels, columns, {}, {}};
        for (int i = 0; i < input_channels * kWarpPositions; ++i) p.x.push_back(integer());
        for (int i = 0; i < columns * input_channels; ++i) p.w.push_back(integer());
        const std::vector<float> made = products_of_warp(p, by_positions, columns <= 16 ? kFewColumns : kMostColumns);
        bool same = true;
        for (int column = 0; column < columns; ++column) {
          for (int position = 0; position < kWarpPositions; ++position) {
            float sum = 0;
            for (int c = 0; c < input_channels; ++c) {
              sum += p.x[static_cast<std::size_t>(c * kWarpPositions + position)] *
                     p.w[static_cast<std::size_t>(column * input_channels + c)];
            }
            same = same && made[static_cast<std::size_t>(column * kSumPitch + position)] == sum;
          }
        }
        CHECK(same);
      }
    }
  }
}

TEST(a_few_outputs_plan_keeps_what_the_kernel_relies_on) {
  std::mt19937 random(3);
  const auto in = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low));
  };
  int taken = 0;
  for (int i = 0; i < 4000; ++i) {
    Conv1dProblem problem =
        layer(in(1, 9), 1 << in(0, 12), in(1, 6), in(1, 3) == 1 ? in(1000, 300000) : 8 * in(1, 60000), in(1, 12),
              in(0, 2) == 1, in(0, 3) == 0 ? in(1, 40) : 1);
    problem.padding = in(0, 200);
    problem.output_length = problem.length + 2 * problem.padding - (problem.taps - 1) * problem.dilation;
    if (problem.output_length < 1) continue;
    const Conv1dPlan plan = plan_conv1d(problem, {}, kH200, false);
    CHECK((plan.which == Conv1dMethod::few_outputs) == suits_few_outputs(problem, kH200));
    if (plan.which != Conv1dMethod::few_outputs) continue;
    ++taken;
    const FewOutputsPlan& own = plan.few_outputs;
    const long long columns = problem.channels * problem.taps, reach = (problem.taps - 1) * problem.dilation;
    CHECK(columns <= own.columns && (own.columns == kFewColumns || own.columns == kMostColumns));
    CHECK(own.outputs > 0 && own.outputs % 8 == 0 && own.shift >= 0 && own.shift < 8);
    CHECK(own.outputs + own.shift + reach <= kFewOutputsPositions);
    CHECK(own.tiles_of_row * own.outputs >= problem.output_length);
    CHECK((own.tiles_of_row - 1) * own.outputs < problem.output_length);
    CHECK(own.tiles == problem.batch * own.tiles_of_row && plan.grid >= 1 && plan.grid <= own.tiles);
    CHECK(!own.by_positions || (problem.padding + own.shift) % 8 == 0);  // tiles of whole words
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200) && plan.threads == kFewOutputsThreads);
    CHECK(plan.shared_memory >=
          weight_bytes(static_cast<int>(problem.input_channels), own.columns) + columns * kSumPitch * 4);
  }
  CHECK(taken > 500);
}

TEST(few_outputs_are_taken_where_they_suit) {
  const auto method = [](const Conv1dProblem& problem, const DeviceProperties& device = kH200) {
    return plan_conv1d(problem, {}, device, false).which;
  };
  for (bool by_positions : {false, true}) {
    Conv1dProblem problem = layer(4, 32, 1, 220672, 7, by_positions);
    CHECK(method(problem) == Conv1dMethod::few_outputs);
    DeviceProperties older = kH200;
    older.compute_capability = 80;
    CHECK(method(problem, older) == Conv1dMethod::few_outputs);
    CHECK(plan_conv1d(problem, {}, kH200, true).kernel ==
          std::string_view(by_positions ? "few_outputs_positions_16" : "few_outputs_channels_16"));
    CHECK(describe(plan_conv1d(problem, {}, kH200, false)).find("16 columns") != std::string::npos);
    CHECK(method(layer(4, 96, 1, 441344, 7, by_positions)) == Conv1dMethod::few_outputs);
    CHECK(method(layer(8, 64, 2, 110250, 5, by_positions)) == Conv1dMethod::few_outputs);
    CHECK(method(layer(8, 64, 4, 110250, 8, by_positions)) == Conv1dMethod::few_outputs);
    CHECK(method(layer(8, 64, 4, 110250, 9, by_positions)) == Conv1dMethod::dense || !by_positions);  // 36 columns
    CHECK(method(layer(4, 7, 1, 220672, 7, by_positions)) != Conv1dMethod::few_outputs);
    CHECK(method(layer(1, 32, 1, 4096, 7, by_positions)) != Conv1dMethod::few_outputs);
    problem.stride = 2;
    CHECK(method(problem) != Conv1dMethod::few_outputs);
    problem.stride = 1;
    problem.interleaves = true;
    CHECK(method(problem) != Conv1dMethod::few_outputs);
    problem.interleaves = false;
    problem.input_by_channels = problem.input_by_positions = false;
    CHECK(method(problem) != Conv1dMethod::few_outputs);
    problem = layer(4, 32, 1, 220672, 7, by_positions);
    problem.dtype = DType::float32;
    CHECK(method(problem) != Conv1dMethod::few_outputs);
    problem.dtype = DType::bfloat16;
    Conv1dParams params{};
    params.input.dtype = params.output.dtype = DType::bfloat16;
    const LinkRequest request = link_request(params, plan_conv1d(problem, {}, kH200, true));
    CHECK(request.kernel == (by_positions ? "sluice_conv1d_few_outputs_positions_16_bfloat16"
                                          : "sluice_conv1d_few_outputs_channels_16_bfloat16"));
  }
}
