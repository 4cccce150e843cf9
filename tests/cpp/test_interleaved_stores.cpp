// Where the store of interleaved results puts them, where all of a tile's exist.
#include <random>
#include <set>

#include "kernels/operators/conv1d/interleaved/interleave.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {

Interleave channels_first(int bits, int channels, int crop, int length) {
  const int components = 1 << bits;
  return {.components = components,
          .stride = components,
          .crop = crop,
          .channels = channels,
          .length = length,
          .by_positions = true,
          .component_bits = bits,
          .by_row_channels = FastDivisor(channels)};
}

Interleave channels_last(int components, int channels, int stride, int crop, int length) {
  Interleave interleave{.components = components,
                        .first_component = 1,
                        .stride = stride,
                        .crop = crop,
                        .channels = channels,
                        .length = length};
  interleave.by_row_channels = FastDivisor(interleave.row_channels());
  return interleave;
}

// Elements from the result's start.
long long place(const ResultVector& at, const long long (&strides)[3]) {
  return at.channel * strides[1] + at.position * strides[2];
}

}  // namespace

TEST(spans_hold_each_result_of_64_positions_once) {
  for (int bits = 1; bits <= 5; ++bits) {
    const int length = 5000;
    const Interleave interleave = channels_first(bits, 64, 3, length);
    const long long strides[3] = {0, length, 1};
    std::set<std::uint32_t> bytes;
    for (int position = 0; position < 64; ++position) {
      for (int row = 0; row < 32; ++row) {
        const std::uint32_t byte = interleave.span_byte(position, row);
        bytes.insert(byte);
        const std::uint32_t plain = swizzled(byte, kSpanBytes);  // its own inverse
        const int span = static_cast<int>(plain / kSpanBytes), element = static_cast<int>(plain % kSpanBytes / 2);
        const long long first = place(interleave.result_vector(64, 0), strides);
        const long long own = place(interleave.result_vector(64 + position, row), strides);
        CHECK(own == first + interleave.span_offset(span, strides[1]) + element);
        // What a lane stores together: pairs of rows, and 16 bytes of eight rows.
        if (row % 2 == 0) CHECK(interleave.span_byte(position, row + 1) == byte + 2);
        if (bits >= 3) CHECK(interleave.span_byte(position, row / 8 * 8) + row % 8 * 2 == byte);
        // Eight rows further, where spans are of fewer components.
        if (bits < 3 && row < 24) CHECK(interleave.span_byte(position, row + 8) == byte + 8 * kSpanBytes);
      }
    }
    CHECK(bytes.size() == 64 * 32 && *bytes.rbegin() == 32 * kSpanBytes - 2);
  }
}

TEST(positions_and_rows_are_whole_where_all_their_results_exist) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int whole[2] = {}, edges = 0;
  for (int n = 0; n < 3000; ++n) {
    const bool by_positions = n % 2 == 0;
    const int length = draw(100, 3000), channels = by_positions || n % 4 == 1 ? 32 * draw(1, 4) : draw(1, 90);
    const Interleave interleave = by_positions ? channels_first(draw(1, 5), channels, draw(0, 40), length)
                                               : channels_last(draw(1, 8), channels, draw(8, 12), draw(0, 40), length);
    const int position = draw(0, length / interleave.stride), row = 32 * draw(0, interleave.components);
    const bool are_whole = interleave.are_whole(position, 16, row, 32);
    bool all = by_positions || channels % 32 == 0, any = false;
    const long long strides[3] = {0, by_positions ? length : 1, by_positions ? 1 : channels};
    for (int v = 0; v < 64; ++v) {
      const EpilogueVector own = interleave.epilogue_vector(v);
      const ResultVector result = interleave.result_vector(position + own.position, row + own.row);
      all = all && result.first == 0 && result.last == kEpilogueVector;
      any = any || result.last > result.first;
      if (!are_whole) continue;
      const long long first = place(interleave.result_vector(position, row), strides);
      CHECK(place(result, strides) == first + interleave.offset(own, strides));
    }
    if (are_whole) CHECK(all);
    if (all && by_positions) CHECK(are_whole);
    whole[by_positions] += are_whole, edges += any && !are_whole;
  }
  CHECK(whole[0] > 50 && whole[1] > 50 && edges > 50);
}
