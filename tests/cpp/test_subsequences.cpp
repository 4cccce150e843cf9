// The subsequences of rows with ids on the CPU, beside a walk over the positions.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/operators/causal_conv1d/cpu/subsequences.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {

using Ids = std::vector<std::int32_t>;

// Rows of equal length, each with a state in `state`.
SequencesParams params_of(const Ids& ids, long long rows, float& state) {
  SequencesParams params{};
  params.convolution.batch = rows;
  params.convolution.length = static_cast<long long>(ids.size()) / rows;
  params.convolution.padding = 3;
  Sequences& s = params.sequences;
  s.ids = {ids.data(), false, {params.convolution.length, 1}};
  s.count = s.slot_count = rows;
  s.pad_slot = s.null_slot = -1;
  s.before = {&state, DType::float32, {0, 0, 0}};
  s.columns = 3;
  return params;
}

bool are_equal(const std::vector<Subsequence>& found, const std::vector<Subsequence>& wanted) {
  return std::equal(found.begin(), found.end(), wanted.begin(), wanted.end(),
                    [](const Subsequence& a, const Subsequence& b) {
                      return a.row == b.row && a.first == b.first && a.last == b.last && a.slot == b.slot &&
                             a.has_history == b.has_history;
                    });
}

void check_rows(const Ids& ids, long long rows) {
  float state = 0;
  const SequencesParams params = params_of(ids, rows, state);
  const long long length = params.convolution.length;
  std::vector<Subsequence> wanted, wanted_last;
  for (long long row = 0; row < rows; ++row) {
    Subsequence last{row, 0, 0, row, true};
    bool is_first = true;
    for (long long t = 0; t < length; ++t) {
      const std::int32_t id = ids[row * length + t];
      if (t == 0 || id != ids[row * length + t - 1]) {
        wanted.push_back({row, t, t, id < 0 ? -1 : row, id >= 0 && is_first});
      }
      wanted.back().last = t + 1;
      if (id < 0) continue;
      is_first = false;
      last = wanted.back();
    }
    wanted_last.push_back(last);
  }
  CHECK(are_equal(subsequences_on_cpu(params), wanted));
  CHECK(are_equal(last_subsequences_on_cpu(params), wanted_last));
}

}  // namespace

TEST(subsequences_between_negative_ids) {
  const Ids ids = {-1, -1, 5, 5, -1, 5, -2, 7};
  float state = 0;
  CHECK(are_equal(subsequences_on_cpu(params_of(ids, 1, state)), {{0, 0, 2, -1, false},
                                                                  {0, 2, 4, 0, true},
                                                                  {0, 4, 5, -1, false},
                                                                  {0, 5, 6, 0, false},
                                                                  {0, 6, 7, -1, false},
                                                                  {0, 7, 8, 0, false}}));
  CHECK(are_equal(last_subsequences_on_cpu(params_of(ids, 2, state)), {{0, 2, 4, 0, true}, {1, 3, 4, 1, false}}));
  check_rows(ids, 1);
  check_rows(ids, 2);
  check_rows(ids, 8);
  check_rows({}, 2);
  check_rows({-1, -1, -1, -1, 0, 0}, 2);
}

TEST(subsequences_of_random_ids) {
  std::mt19937 random(sluice::test::seed());
  const auto draw = [&random](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int number = 0; number < 500; ++number) {
    const int rows = draw(1, 4), length = draw(0, 30);
    Ids ids;
    while (ids.size() < static_cast<std::size_t>(rows * length)) ids.insert(ids.end(), draw(1, 6), draw(-2, 2));
    ids.resize(rows * length);
    check_rows(ids, rows);
  }
}
