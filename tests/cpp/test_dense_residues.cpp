// The dense kernel's rows with a stride: its fetches and taps in the kernel's order, on the host.
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "kernels/operators/conv1d/dense/groups.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/shared/common/architectures.h"
#include "tests/cpp/check.h"
#include "tests/cpp/problems.h"

using namespace sluice;

namespace {

// One input and one output channel: the rows are the same for all.
struct Case {
  int taps, stride, dilation, padding, length;
  DType dtype = DType::float16;

  int outputs() const { return (length + 2 * padding - (taps - 1) * dilation - 1) / stride + 1; }
  Conv1dProblem problem(DenseFetch fetch, long long channels) const {
    return {.batch = 300,
            .input_channels = channels,
            .channels = channels,
            .groups = 1,
            .output_length = outputs(),
            .taps = taps,
            .stride = stride,
            .dilation = dilation,
            .length = length,
            .padding = padding,
            .dtype = dtype,
            .fetch = fetch,
            .allows_tf32 = dtype == DType::float32};
  }
};

long long value_at(const Case& c, long long position) {
  return position < 0 || position >= c.length ? 0 : position * 7 % 101 + 1;
}
long long weight_of(int tap) { return tap * 13 % 31 + 1; }

long long expected(const Case& c, int output) {
  long long sum = 0;
  for (int k = 0; k < c.taps; ++k) {
    sum += weight_of(k) * value_at(c, 1LL * output * c.stride - c.padding + 1LL * k * c.dilation);
  }
  return sum;
}

using Stage = std::vector<std::optional<long long>>;  // rows; nothing where none is written

// Fetches a stage; `fetched` counts positions of the padded input.
Stage fetch_stage(const Case& c, const DensePlan& plan, int first_output, int stage, std::multiset<int>& fetched) {
  Stage rows(plan.stage_rows);
  const int start = plan.residues.first_position(first_output, stage) - c.padding - plan.shift;
  if (!plan.residues.are_together()) {
    for (int row = 0; row < plan.stage_rows; ++row) {
      rows[row] = value_at(c, start + row * c.stride);
      fetched.insert(start + row * c.stride);
    }
    return rows;
  }
  CHECK(plan.fetch != DenseFetch::positions || start % word_elements(c.dtype) == 0);
  for (int i = 0; i < plan.stage_positions; ++i) {
    fetched.insert(start + i);
    const int row = plan.residues.row_of(i - plan.shift);
    CHECK(row < plan.stage_rows);
    if (row < 0) continue;
    CHECK(!rows[row].has_value());
    rows[row] = value_at(c, start + i);
  }
  return rows;
}

// Checks a tile's sums over the fetched taps and rows, and returns the order of the taps.
std::vector<int> check_tile(const Case& c, const DensePlan& plan, int tile) {
  const int first_output = tile * plan.positions();
  std::vector<long long> sums(plan.positions(), 0);
  std::vector<int> order;
  std::multiset<int> fetched;
  Stage rows;
  int stages = 0, weight_stages = 0;
  for (int residue = 0; residue < plan.residues.count; ++residue) {
    if (residue == 0 || !plan.residues.are_together()) {
      rows = fetch_stage(c, plan, first_output, residue, fetched);
      ++stages;
    }
    int row = plan.residues.first_row(residue);
    const int taps = plan.residues.taps_of(residue);
    CHECK(taps > 0);
    for (int k = 0; k < taps; k += plan.stage_taps) {
      ++weight_stages;
      for (int i = 0; i < min_of(plan.stage_taps, taps - k); ++i) {
        const int tap = residue + (k + i) * plan.residues.tap_step;
        order.push_back(tap);
        CHECK(tap < c.taps && row >= 0 && row + plan.positions() <= plan.stage_rows);
        for (int l = 0; l < plan.positions(); ++l) {
          CHECK(rows[row + l].has_value());  // else the product would read unwritten memory
          sums[l] += weight_of(tap) * rows[row + l].value_or(0);
        }
        row += plan.residues.row_step;
      }
    }
  }
  CHECK(order.size() == std::set<int>(order.begin(), order.end()).size() && static_cast<int>(order.size()) == c.taps);
  CHECK(stages == plan.residues.stages() && weight_stages * plan.order.k_blocks == plan.weight_stages_of_tile());
  for (int position : fetched) CHECK(fetched.count(position) == 1);
  for (int l = 0; l < plan.positions() && first_output + l < c.outputs(); ++l) {
    CHECK(sums[l] == expected(c, first_output + l));
  }
  return order;
}

constexpr DenseFetch kFetches[] = {DenseFetch::channels, DenseFetch::positions, DenseFetch::shifted,
                                   DenseFetch::elements};

struct Found {
  std::set<int> shapes;
  int together = 0, apart = 0;
};

// Checks a convolution's tiles for every fetch: all give the same bits.
void check_fetches(const Case& c, Found& found) {
  std::set<std::vector<int>> orders;
  for (DenseFetch fetch : kFetches) {
    const long long channels = c.stride % 2 == 0 ? 64 : 16;
    const Conv1dPlan plan = plan_dense_unconverted(c.problem(fetch, channels), kH200);
    if (plan.threads == 0) continue;
    const DensePlan& own = plan.dense;
    CHECK(own.is_general && own.residues.stride == c.stride);
    CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
    const bool is_together = own.residues.are_together();
    CHECK(is_together == (own.fetch == DenseFetch::positions || own.fetch == DenseFetch::shifted));
    found.shapes.insert(own.shape);
    ++(is_together ? found.together : found.apart);
    for (int tile = 0; tile < own.position_tiles; ++tile) orders.insert(check_tile(c, own, tile));
  }
  CHECK(orders.size() <= 1);
}

}  // namespace

TEST(strided_taps_find_their_rows) {
  Found found;
  for (int stride : {2, 3, 4, 5, 6, 7, 8, 10, 16, 33}) {
    for (int taps : {1, 2, 3, 4, 5, 7, 8, 10, 16, 17}) {
      for (int dilation : {1, 2, 3, 4, 6, 10}) {
        for (int padding : {0, 1, 5, taps * dilation}) {
          check_fetches({taps, stride, dilation, padding, 600 * stride + 13}, found);
        }
      }
    }
  }
  CHECK(found.shapes.size() > 3 && found.together > 3500 && found.apart > 6000);
}

TEST(strided_taps_of_float32_find_their_rows) {
  Found found;
  for (int stride : {2, 3, 4, 7, 10, 33}) {
    for (int taps : {1, 2, 5, 8, 17}) {
      for (int dilation : {1, 2, 6}) {
        for (int padding : {0, 3, 5, taps * dilation}) {
          check_fetches({taps, stride, dilation, padding, 600 * stride + 13, DType::float32}, found);
        }
      }
    }
  }
  CHECK(found.shapes.size() > 1 && found.together > 200 && found.apart > 400);
}

TEST(a_stride_of_one_is_one_residue) {
  for (int taps : {1, 3, 11}) {
    for (int dilation : {1, 5}) {
      const TapResidues residues = tap_residues(taps, 1, dilation, 128, /*together=*/false);
      CHECK(residues.stages() == 1 && residues.taps_of(0) == taps && residues.tap_step == 1 &&
            residues.row_step == dilation);
      CHECK(stage_rows(taps, 1, dilation, 128, false) == 128 + (taps - 1) * dilation);
    }
  }
}

TEST(alignment_and_packing_change_no_order_of_sums) {
  for (DType dtype : {DType::float16, DType::float32}) {
    for (long long channels : {48, 64, 96, 200, 512}) {
      for (int stride : {2, 3, 4, 5, 8, 16}) {
        for (int length : {3000, 50000}) {
          const Case c{2 * stride, stride, 1, 0, length, dtype};
          Conv1dProblem problem = c.problem(DenseFetch::positions, channels);
          problem.batch = 8;
          const Conv1dPlan aligned = plan_dense(problem, kH200);
          problem.is_packed = true;
          CHECK(plan_dense(problem, kH200).dense.order == aligned.dense.order);
          problem.fetch = DenseFetch::shifted;
          CHECK(plan_dense(problem, kH200).dense.order == aligned.dense.order);
        }
      }
    }
  }
}

TEST(eight_consecutive_positions_are_in_different_banks) {
  for (int stride : {2, 3, 4, 8, 16, 24, 64}) {
    for (int positions : {64, 128, 256}) {
      const TapResidues residues = tap_residues(2 * stride, stride, 1, positions, /*together=*/true);
      for (int first = 0; first + kBankRows <= positions * stride; first += kBankRows) {
        std::set<int> banks;
        for (int i = 0; i < kBankRows; ++i) banks.insert(residues.row_of(first + i) % kBankRows);
        CHECK(static_cast<int>(banks.size()) == kBankRows || stride == 3);
        CHECK(static_cast<int>(banks.size()) >= kBankRows - 2);
      }
    }
  }
}

TEST(strided_plans_fit_and_say_how) {
  const auto planned = [](long long batch, long long inputs, long long outputs, long long length, int taps, int stride,
                          DenseFetch fetch) {
    const Case c{taps, stride, 1, 0, static_cast<int>(length)};
    Conv1dProblem problem = c.problem(fetch, inputs);
    problem.batch = batch, problem.channels = outputs;
    const Conv1dPlan plan = plan_dense(problem, kH200);
    CHECK(plan.threads == kDenseThreads && plan.shared_memory <= most_dynamic_shared_memory(kH200));
    CHECK(plan.dense.input_stages >= 2 && plan.dense.weight_stages >= 1);
    return plan;
  };
  // Wav2Vec2's and Whisper's layers, codecs' encoders, whose taps are twice their stride.
  for (DenseFetch fetch : {DenseFetch::channels, DenseFetch::positions, DenseFetch::shifted}) {
    planned(8, 512, 512, 31999, 3, 2, fetch), planned(8, 512, 512, 1999, 2, 2, fetch);
    planned(8, 1280, 1280, 3002, 3, 2, fetch);
    for (int stride : {2, 4, 5, 8}) planned(4, 32 * stride, 64 * stride, 100000 / stride, 2 * stride, stride, fetch);
    planned(4, 16, 768, 16000, 16, 16, fetch);
  }
  const Conv1dPlan last = planned(8, 512, 512, 31999, 3, 2, DenseFetch::channels);
  CHECK(describe(last).find("positions of a residue and") != std::string::npos);
  const int unread = last.dense.stage_rows - last.dense.positions() - 1;  // rows of whole swizzle atoms
  CHECK(unread >= 0 && unread < kSwizzleRows * last.dense.map_copies);
  const Conv1dPlan converted = planned(8, 512, 512, 31999, 3, 2, DenseFetch::positions);
  CHECK(describe(converted).find("converted to channels-last") != std::string::npos);
  CHECK(converted.workspace_bytes ==
        converted.dense.order.bytes() + ToChannelsLastParams::bytes(DType::float16, 8, 512, 31999));
  CHECK(converted.dense.fetch == DenseFetch::channels && converted.dense.order == last.dense.order);
  const Conv1dPlan all = planned(1, 128, 128, 1000, 3, 2, DenseFetch::positions);
  CHECK(!all.dense.converts_input && describe(all).find("positions of all residues and") != std::string::npos);
}

TEST(strides_that_are_left_to_aten_have_a_reason) {
  const auto reason = [](const Conv1dProblem& problem) {
    const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, false);
    CHECK(plan.threads == 0);
    return std::string(plan.reason);
  };
  const Case wide{48, 48, 1, 0, 200000};
  CHECK(plan_dense(wide.problem(DenseFetch::channels, 128), kH200).threads > 0);
  Conv1dProblem problem = wide.problem(DenseFetch::positions, 6 * 100);
  CHECK(plan_dense(problem, kH200).dense.converts_input);
  problem.groups = 6, problem.channels = 6 * 96;  // whose channels are not whole words
  CHECK(reason(problem).find("the residues of so wide a stride") != std::string::npos);
  const Case far{2, 1 << 26, 1, 0, 1 << 30};
  CHECK(reason(far.problem(DenseFetch::channels, 128)).find("so few positions") == std::string::npos);
}

TEST(tiles_of_channels_are_in_one_group) {
  for (long long groups : {1, 2, 3, 16, 64}) {
    for (long long outputs : {8, 16, 24, 48, 64, 96, 128, 200}) {
      for (const DenseShape& tile : kDenseShapes) {
        const DenseGroups own = dense_groups(groups, groups * 24, groups * outputs, tile.channels);
        const long long tiles = groups * ceil_div<long long>(outputs, tile.channels);
        std::vector<int> stored(groups * outputs, 0);
        for (int t = 0; t < tiles; ++t) {
          const int group = own.group_of(t), first = own.first_channel(t, tile.channels);
          CHECK(first % kSwizzleRows == 0 && own.first_input(group) == group * 24);  // rows of the packed weight
          CHECK(first / outputs == group && own.end(group) == (group + 1) * outputs);
          CHECK(own.packed_end(group) == own.end(group));
          for (int c = first; c < min_of(first + tile.channels, own.end(group)); ++c) ++stored[c];
        }
        for (int count : stored) CHECK(count == 1);
      }
    }
  }
  const DenseGroups odd = dense_groups(1, 20, 37, 64);
  CHECK(odd.end(0) == 37 && odd.packed_end(0) == 40);
}

namespace {

Conv1dProblem problem_of_groups(long long groups, long long inputs, long long outputs, int length, int taps,
                                DType dtype = DType::float16) {
  const Case c{taps, 1, 1, taps / 2, length, dtype};
  Conv1dProblem problem = c.problem(DenseFetch::positions, groups * inputs);
  problem.batch = 8, problem.groups = groups, problem.channels = groups * outputs;
  return problem;
}

void check_plan_of_groups(const Conv1dPlan& plan, long long inputs, long long outputs, int taps, DType dtype) {
  const DensePlan& own = plan.dense;
  const int element_bytes = static_cast<int>(size_of(dtype));
  const long long bytes = inputs * element_bytes;
  CHECK(plan.threads == kDenseThreads && own.is_general && own.residues.stages() == 1);
  CHECK(own.channel_tiles == 16 * ceil_div<long long>(outputs, own.tile().channels));
  CHECK(own.tiles == 8 * own.channel_tiles * own.position_tiles);
  CHECK(own.order == packed_order(16 * outputs, inputs, taps, element_bytes));
  CHECK(own.partial_steps() == (bytes > 64 && bytes <= 96 ? 3 : 0));
  CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
}

}  // namespace

// Wav2Vec2's positional convolution, whose 48 channels of half types are three steps of a row; ResNeXt's groups; groups
// whose channels are part of a step.
TEST(groups_have_plans) {
  int of_float32 = 0;
  constexpr std::pair<int, int> kGroups[] = {{2, 8},   {4, 8},   {8, 8},     {12, 16}, {3, 24},  {16, 16},
                                             {48, 48}, {64, 64}, {128, 128}, {20, 40}, {32, 200}};
  for (DType dtype : {DType::float16, DType::float32}) {
    for (DenseFetch fetch : kFetches) {
      for (const auto& [inputs, outputs] : kGroups) {
        for (int taps : {1, 3, 128}) {
          Conv1dProblem problem = problem_of_groups(16, inputs, outputs, 1496, taps, dtype);
          problem.fetch = fetch;
          const Conv1dPlan plan = plan_dense(problem, kH200);
          const bool may_be_torchs = fetch == DenseFetch::elements || dtype == DType::float32;
          if (may_be_torchs && plan.threads == 0) continue;  // long sums, and where torch was faster in TF32
          of_float32 += dtype == DType::float32;
          check_plan_of_groups(plan, inputs, outputs, taps, dtype);
        }
      }
    }
  }
  CHECK(of_float32 > 20);
  const bool has_code = code_architecture(90) == "90a";
  const auto method = [](const Conv1dProblem& problem) { return choose_method(problem, {}, kH200).method; };
  for (DType dtype : {DType::float16, DType::float32}) {
    CHECK((method(problem_of_groups(16, 48, 48, 1496, 128, dtype)) == Conv1dMethod::dense) == has_code);
    CHECK((method(problem_of_groups(32, 2, 8, 1496, 3, dtype)) == Conv1dMethod::dense) == has_code);
  }
  CHECK(method(problem_of_groups(32, 16, 4, 1496, 3)) == Conv1dMethod::aten);
  CHECK(method(problem_of_groups(32, 8, 12, 1496, 3)) == Conv1dMethod::aten);
  CHECK(method(problem_of_groups(2, 16, 20, 1496, 3)) == Conv1dMethod::aten);
}

TEST(grouped_taps_find_their_rows) {
  for (int taps : {1, 3, 128}) {
    for (int dilation : {1, 3}) {
      const Case c{taps, 1, dilation, taps / 2, 1500};
      for (DenseFetch fetch : kFetches) {
        Conv1dProblem problem = c.problem(fetch, 4 * 16);
        problem.groups = 4;
        const Conv1dPlan plan = plan_dense(problem, kH200);
        if (plan.threads == 0) continue;
        for (int tile = 0; tile < plan.dense.position_tiles; ++tile) check_tile(c, plan.dense, tile);
      }
    }
  }
}
