// transform on the CPU from and into memory that ends with the tensors, so that a sanitizer sees accesses beyond them.
#include <array>
#include <vector>

#include "kernels/operators/transform/cpu/transform.h"
#include "kernels/shared/stages/parse.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {

// rows x columns of an input with a row pitch, times a row and plus a column.
void run(long long rows, long long columns, long long pitch, bool flat_output) {
  std::vector<float> x((rows - 1) * pitch + columns), row(columns), column(rows);
  std::vector<float> result(flat_output ? rows * columns : x.size(), -1.0f);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 97);
  for (long long c = 0; c < columns; ++c) row[c] = static_cast<float>(c % 5 + 1);
  for (long long r = 0; r < rows; ++r) column[r] = static_cast<float>(r % 7);
  const long long target_pitch = flat_output ? columns : pitch;
  TransformParams params{};
  CHECK(parse_chain("mul($0)|add($1)", 2, params.program).empty());
  params.input = {x.data(), DType::float32, {1, pitch}};
  params.output = {result.data(), DType::float32, {1, target_pitch}};
  params.operands[0] = {row.data(), DType::float32, {1, 0}};
  params.operands[1] = {column.data(), DType::float32, {0, 1}};
  params.rank = 2;
  params.sizes[0] = columns;
  params.sizes[1] = rows;
  const long long elements = rows * columns, cut = elements / 3;
  with_instruction_set([&]<InstructionSet set>() {
    transform_cpu<set>(params, 0, cut);
    transform_cpu<set>(params, cut, elements);
  });
  long long wrong = 0;
  for (long long r = 0; r < rows; ++r) {
    for (long long c = 0; c < columns; ++c) {
      wrong += result[r * target_pitch + c] != x[r * pitch + c] * row[c] + column[r];
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST(transform_steps_beside_no_tensor) {
  const InstructionSet before = instruction_set();
  for (const char* name : {"avx512", "avx2", "baseline"}) {
    if (!use_instruction_set(name)) continue;
    for (long long columns : {1, 2, 7, 33, 100, 129, 1000, 5000}) {
      for (long long rows : {1, 3, 300}) {
        for (long long gap : {0, 1, 40}) {
          run(rows, columns, columns + gap, true);
          run(rows, columns, columns + gap, false);
        }
      }
    }
  }
  use_instruction_set(name_of(before));
}
