// Polyphase components as rows of one dense convolution: the kernel's index arithmetic, run on the host, computes the
// transposed convolution, writes each result once and nothing else.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "tests/cpp/check.h"

namespace sluice {
namespace {

constexpr std::int64_t kUnwritten = INT64_MIN;

struct Sizes {
  int batch = 1, inputs, outputs, length, taps, stride, padding, dilation, spare;  // `spare`: output padding
  bool channels_last;
  DType dtype = DType::float16;
};

// Whole numbers, so that sums are exact in any order.
struct Problem {
  Sizes sizes;
  std::vector<std::uint16_t> weight;  // (input channel, output channel, tap)
  std::vector<int> input;             // (input channel, position)
  Conv1dParams whole;

  Problem(const Sizes& given, std::mt19937& random) : sizes(given) {
    const Sizes& s = sizes;
    const auto fill = [&](auto& values, int size) {
      values.resize(size);
      for (auto& value : values) value = std::uniform_int_distribution<int>(1, 99)(random);
    };
    fill(weight, s.inputs * s.outputs * s.taps);
    fill(input, s.inputs * s.length);
    whole = Conv1dParams{
        {.input = {nullptr, s.dtype, {s.inputs * s.length, s.length, 1}},
         .output = {nullptr, s.dtype, {}},
         .weight = {},
         .bias = {},
         .history = {},
         .batch = 1,
         .channels = s.outputs,
         .length = s.length,
         .output_length = 1LL * (s.length - 1) * s.stride - 2 * s.padding + s.dilation * (s.taps - 1) + 1 + s.spare,
         .multiplier = 1,
         .taps = s.taps,
         .stride = s.stride,
         .padding = s.padding,
         .dilation = s.dilation}};
    whole.output.strides[1] = s.channels_last ? 1 : whole.output_length;
    whole.output.strides[2] = s.channels_last ? s.outputs : 1;
    whole.dense = {.weight = {weight.data(), s.dtype, {s.taps, s.outputs * s.taps, 1}}, .input_channels = s.inputs};
  }

  std::vector<std::int64_t> definition() const {
    const Sizes& s = sizes;
    std::vector<std::int64_t> result(s.outputs * whole.output_length);
    for (int i = 0; i < s.inputs; ++i) {
      for (int c = 0; c < s.outputs; ++c) {
        for (int p = 0; p < s.length; ++p) {
          for (int k = 0; k < s.taps; ++k) {
            const long long t = 1LL * p * s.stride + 1LL * k * s.dilation - s.padding;
            if (t < 0 || t >= whole.output_length) continue;
            result[c * whole.output_length + t] +=
                1LL * input[i * s.length + p] * weight[(i * s.outputs + c) * s.taps + k];
          }
        }
      }
    }
    return result;
  }
};

Sizes drawn(std::mt19937& random) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const int strides[] = {2, 2, 3, 4, 5, 8, 8, 10, 16, 32};
  Sizes s{};
  s.inputs = draw(1, 70), s.outputs = draw(1, 12), s.length = draw(1, 40), s.stride = strides[draw(0, 9)];
  s.taps = draw(0, 5) == 0 ? draw(1, 20) : s.stride * draw(1, 3);
  s.dilation = draw(0, 2) == 0 ? draw(1, 5) : 1;
  s.spare = draw(0, std::max(s.stride, s.dilation) - 1);
  const int spread = (s.length - 1) * s.stride + s.dilation * (s.taps - 1) + 1 + s.spare;
  s.padding = draw(0, std::min((spread - 1) / 2, s.taps));
  s.channels_last = draw(0, 1) == 1;
  s.dtype = draw(0, 1) == 1 ? DType::float16 : DType::float32;
  return s;
}

// The packed weight as the packing kernel makes it, word by word. Elements of any dtype are small whole numbers here.
std::vector<std::uint16_t> pack_polyphase(const PolyphasePackParams& params) {
  const PackedOrder& order = params.order;
  const auto* const weight = params.weight.as<const std::uint16_t>();
  const long long* const strides = params.weight.strides;
  std::vector<std::uint16_t> packed(order.elements(), 0xffff);
  const FastDivisor by_components(params.interleave.components);
  const auto write = [&](int channel, int tap, const PackedWord& word) {
    for (int i = 0; i < order.word_elements(); ++i) {
      const long long input = word.input_channel(order) + i;
      const bool exists =
          channel < params.interleave.channels && input < params.input_channels && tap < params.weight_taps;
      std::uint16_t& element = packed.at(word.index(order) * order.word_elements() + i);
      CHECK(element == 0xffff);
      element = exists ? weight[channel * strides[0] + input * strides[1] + tap * strides[2]] : 0;
    }
  };
  for (int channel = 0; channel < params.channels(); ++channel) {
    for (int column = 0; column < params.columns_of_channel(); ++column) {
      for (int k_block = 0; k_block < order.k_blocks; ++k_block) {
        for (int word = 0; word < order.words(); ++word) {
          write(channel, params.tap(by_components, column),
                params.packed_word(by_components, channel, column, k_block, word));
        }
      }
    }
  }
  CHECK(std::find(packed.begin(), packed.end(), 0xffff) == packed.end());
  return packed;
}

// The tensor cores' sums, (position, row), of all tiles; rows that do not exist have a value that must not be stored.
std::vector<std::int64_t> sums_of(const Problem& problem, const Conv1dParams& params, int positions, int rows) {
  const int inputs = static_cast<int>(params.dense.input_channels);
  const int element_bytes = static_cast<int>(size_of(params.input.dtype));
  const PackedOrder order = packed_order(params.channels, inputs, params.taps, element_bytes);
  const std::vector<std::uint16_t> packed = pack_polyphase({.weight = params.dense.weight,
                                                            .input_channels = inputs,
                                                            .weight_taps = params.dense.weight_taps,
                                                            .packed = nullptr,
                                                            .order = order,
                                                            .interleave = params.interleave});
  const int length = problem.sizes.length;
  // Leading inputs that reach no result may be left out.
  const auto moved = static_cast<const char*>(params.input.data) - static_cast<const char*>(problem.whole.input.data);
  const long long left_out = moved / element_bytes;
  CHECK(left_out >= 0 && params.length <= length - left_out);
  std::vector<std::int64_t> sums(static_cast<std::size_t>(positions) * rows, 1LL << 50);
  for (int row = 0; row < std::min<long long>(rows, order.rows); ++row) {
    for (int q = 0; q < positions; ++q) sums[q * rows + row] = 0;
    for (int k_block = 0; k_block < order.k_blocks; ++k_block) {
      for (int tap = 0; tap < order.taps; ++tap) {
        for (int c = 0; c < order.k_block; ++c) {
          const auto byte = static_cast<std::uint32_t>((row * order.k_block + c) * element_bytes);
          const std::size_t first = (static_cast<std::size_t>(k_block) * order.taps + tap) * order.rows * order.k_block;
          const int value = packed[first + swizzled(byte, order.row_bytes()) / element_bytes];
          const int channel = k_block * order.k_block + c;
          if (channel >= inputs) {
            CHECK(value == 0);
            continue;
          }
          for (int q = 0; q < positions; ++q) {
            const long long i = q - params.padding + tap * params.dilation;
            if (i < 0 || i >= params.length) continue;
            sums[q * rows + row] += 1LL * problem.input[channel * length + left_out + i] * value;
          }
        }
      }
    }
  }
  return sums;
}

struct Store {
  const Interleave& own;
  const std::vector<std::int64_t>& sums;
  int rows;
  std::vector<std::int64_t>& results;

  void vector(int first_position, int first_row, int number, std::set<int>& seen) const {
    const EpilogueVector at = own.epilogue_vector(number);
    const ResultVector to = own.result_vector(first_position + at.position, first_row + at.row);
    for (int i = 0; i < kEpilogueVector; ++i) {
      const EpilogueVector from = own.element(at, i);
      CHECK(from.position >= 0 && from.position < 16 && from.row >= 0 && from.row < kEpilogueColumns);
      CHECK(seen.insert(from.position * kEpilogueColumns + from.row).second);
      if (i < to.first || i >= to.last) continue;
      const int channel = to.channel + (own.by_positions ? 0 : i), t = to.position + (own.by_positions ? i : 0);
      CHECK(channel < own.channels && t >= 0 && t < own.length);
      CHECK(own.channel_of(first_row + from.row) == channel);  // whose bias is added
      std::int64_t& result = results[1LL * channel * own.length + t];
      CHECK(result == kUnwritten);
      result = sums[(first_position + from.position) * rows + first_row + from.row];
    }
    // Consecutive lanes of a span hold consecutive words of it.
    if (number % own.span_lanes() == 0) return;
    const EpilogueVector before = own.epilogue_vector(number - 1);
    const ResultVector former = own.result_vector(first_position + before.position, first_row + before.row);
    CHECK(former.channel == to.channel && former.position + kEpilogueVector == to.position);
  }

  void epilogue_tile(int first_position, int first_row) const {
    std::set<int> seen;
    for (int number = 0; number < 64; ++number) vector(first_position, first_row, number, seen);
    CHECK(seen.size() == 16 * kEpilogueColumns);
  }
};

void write_range(const Problem& problem, const ComponentRange& range, std::vector<std::int64_t>& results) {
  const Conv1dParams params = interleaved_params(problem.whole, range);
  const Interleave& own = params.interleave;
  CHECK(params.stride == 1 && params.padding >= 0 && params.output_length > 0);
  CHECK(own.channels == problem.sizes.outputs && own.length == problem.whole.output_length);
  CHECK(params.channels % own.components == 0 && params.channels >= 1LL * own.components * own.channels);
  const int positions = static_cast<int>(round_up<long long>(params.output_length, 64));
  const int rows = static_cast<int>(round_up<long long>(params.channels, 128));
  const std::vector<std::int64_t> sums = sums_of(problem, params, positions, rows);
  const Store store{own, sums, rows, results};
  for (int position = 0; position < positions; position += 16) {
    for (int row = 0; row < rows; row += kEpilogueColumns) store.epilogue_tile(position, row);
  }
}

void check_convolution(const Problem& problem) {
  std::vector<std::int64_t> results(1LL * problem.whole.channels * problem.whole.output_length, kUnwritten);
  const ComponentRanges ranges = component_ranges(problem.whole);
  for (int i = 0; i < ranges.count; ++i) write_range(problem, ranges.of[i], results);
  CHECK(results == problem.definition());
}

// A vocoder's layer, channels-first.
constexpr Sizes kLayer{.inputs = 16,
                       .outputs = 8,
                       .length = 30,
                       .taps = 16,
                       .stride = 8,
                       .padding = 4,
                       .dilation = 1,
                       .spare = 0,
                       .channels_last = false};

}  // namespace

TEST(interleaved_components_make_up_a_transposed_convolution) {
  std::mt19937 random(sluice::test::seed());
  int taken[2] = {}, words_of_4 = 0, dilated = 0, unaligned = 0, uneven = 0, without_tap = 0, cropped = 0;
  for (int n = 0; n < 1500; ++n) {
    const Problem problem(drawn(random), random);
    if (not_interleaved_because(problem.whole) != nullptr) continue;
    check_convolution(problem);
    ++taken[problem.sizes.channels_last];
    words_of_4 += problem.sizes.dtype == DType::float32;
    dilated += problem.sizes.dilation > 1;
    unaligned += problem.sizes.channels_last && problem.sizes.outputs % 8 != 0;
    uneven += problem.sizes.taps % problem.sizes.stride != 0;
    without_tap += problem.sizes.taps < problem.sizes.stride;
    cropped += problem.sizes.padding > problem.sizes.taps * problem.sizes.dilation - problem.sizes.stride;
  }
  CHECK(taken[0] > 500 && taken[1] > 500 && dilated > 100 && unaligned > 300);
  CHECK(uneven > 100 && without_tap > 30 && cropped > 50 && words_of_4 > 300);
}

TEST(a_reason_is_given_where_components_are_no_rows_of_one_convolution) {
  std::mt19937 random(1);
  const auto reason = [&](const Sizes& sizes) {
    const char* const text = not_interleaved_because(Problem(sizes, random).whole);
    return text != nullptr ? std::string(text) : std::string();
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  Sizes s = kLayer;
  CHECK(reason(s).empty());
  s.taps = 15;
  CHECK(reason(s).empty());
  s = kLayer, s.dilation = 2;
  CHECK(reason(s).empty());
  s.dilation = 8;
  CHECK(contains(reason(s), "leaves most results without a tap"));
  s = kLayer, s.padding = 16;
  CHECK(reason(s).empty());
  Problem problem(kLayer, random);
  problem.whole.output_length = 1LL << 30;
  CHECK(not_interleaved_because(problem.whole) != nullptr);
}

TEST(results_that_are_no_spans_of_components_are_transposed) {
  std::mt19937 random(1);
  const auto transposed = [&](Sizes sizes) {
    const bool channels_first = converts_results(Problem(sizes, random).whole);
    sizes.channels_last = true;
    CHECK(!converts_results(Problem(sizes, random).whole));
    sizes.channels_last = false, sizes.outputs = 1;  // rows of one channel are rows of positions
    CHECK(!converts_results(Problem(sizes, random).whole));
    return channels_first;
  };
  CHECK(!transposed(kLayer));
  Sizes s = kLayer;
  s.taps = 15;
  CHECK(transposed(s));
  s = kLayer, s.dilation = 3;
  CHECK(transposed(s));
  s = kLayer, s.stride = 5, s.taps = 10;
  CHECK(transposed(s));
  s = kLayer, s.stride = s.taps = 64;
  CHECK(transposed(s));
}

TEST(component_ranges_have_equally_many_taps_and_a_result) {
  std::mt19937 random(1);
  const auto ranges_of = [&](int taps, int stride, int length, int dilation = 1) {
    const Sizes sizes{.inputs = 3,
                      .outputs = 2,
                      .length = length,
                      .taps = taps,
                      .stride = stride,
                      .padding = 0,
                      .dilation = dilation,
                      .spare = 0,
                      .channels_last = true};
    return component_ranges(Problem(sizes, random).whole);
  };
  const ComponentRanges even = ranges_of(6, 3, 9), uneven = ranges_of(7, 3, 9), few = ranges_of(2, 5, 9);
  CHECK(even.count == 1 && even.of[0].components == 3 && even.of[0].taps == 2);
  CHECK(uneven.count == 2 && uneven.of[0].components == 1 && uneven.of[0].taps == 3);
  CHECK(uneven.of[1].first_component == 1 && uneven.of[1].components == 2 && uneven.of[1].taps == 2);
  CHECK(few.count == 2 && few.of[1].first_component == 2 && few.of[1].taps == 0);
  CHECK(ranges_of(2, 5, 1).count == 1);  // no result after the taps of the only input
  const ComponentRanges apart = ranges_of(5, 4, 9, 2);
  CHECK(apart.count == 3 && apart.of[0].components == 1 && apart.of[0].taps == 3);
  CHECK(apart.of[1].first_component == 1 && apart.of[1].components == 1 && apart.of[1].taps == 2);
  CHECK(apart.of[2].components == 2 && apart.of[2].taps == 0 && apart.of[2].offset == 1);
}

TEST(layers_of_vocoders_have_as_many_taps_a_component_as_reach_it) {
  std::mt19937 random(1);
  const auto rows_of = [&](int length, int taps, int stride, int padding) {
    const Sizes sizes{.inputs = 32,
                      .outputs = 16,
                      .length = length,
                      .taps = taps,
                      .stride = stride,
                      .padding = padding,
                      .dilation = 1,
                      .spare = 0,
                      .channels_last = false};
    const Conv1dParams whole = Problem(sizes, random).whole;
    const ComponentRanges ranges = component_ranges(whole);
    CHECK(ranges.count == 1);
    return interleaved_params(whole, ranges.of[0]);
  };
  const Conv1dParams upper = rows_of(430, 16, 8, 4), lower = rows_of(550, 4, 2, 1);
  CHECK(upper.taps == 2 && upper.channels == 128 && upper.padding == 1 && upper.output_length == 431);
  CHECK(upper.interleave.crop == 4 && upper.interleave.length == 3440);
  CHECK(lower.taps == 2 && lower.channels == 32 && lower.padding == 1 && lower.output_length == 551);
  CHECK(lower.interleave.crop == 1 && lower.interleave.length == 1100);
}

TEST(plans_of_interleaved_results_keep_to_their_tiles) {
  constexpr std::pair<int, DType> kComponents[] = {{2, DType::float16}, {3, DType::float16}, {8, DType::float16},
                                                   {2, DType::float32}, {3, DType::float32}, {8, DType::float32}};
  int planned = 0;
  for (long long inputs : {16, 64, 512, 1536}) {
    for (long long outputs : {1, 8, 32, 256, 768}) {
      for (long long length : {20, 430, 3440, 55040}) {
        for (const auto& [components, dtype] : kComponents) {
          Conv1dProblem problem{.batch = 4,
                                .input_channels = inputs,
                                .channels = components * round_up(outputs, 8LL),
                                .groups = 1,
                                .output_length = length + 1,
                                .taps = 2,
                                .length = length,
                                .padding = 1,
                                .dtype = dtype,
                                .fetch = DenseFetch::channels,
                                .by_positions = false,
                                .allows_tf32 = dtype == DType::float32,
                                .interleaves = true,
                                .is_chained = true};
          const Conv1dPlan plan = plan_dense(problem, kH200);
          if (plan.threads == 0) continue;
          planned += dtype == DType::float32;
          CHECK(plan.kernel == std::string_view(kInterleavedKernel));
          CHECK(plan.shared_memory <= most_dynamic_shared_memory(kH200));
          CHECK(interleaves(plan.dense.tile()));
          CHECK(plan.workspace_bytes == plan.dense.order.bytes());
          CHECK(plan.dense.channel_tiles * plan.dense.tile().channels >= problem.channels);
        }
      }
    }
  }
  CHECK(planned > 50);
}

}  // namespace sluice
