#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/geometry.h"
#include "tests/cpp/check.h"

using namespace sluice;

TEST(contiguous_tensors_are_one_dimension) {
  const Geometry merged = merge_dimensions({2, 3, 4}, {{12, 4, 1}, {12, 4, 1}});
  CHECK(merged.rank == 1 && merged.sizes[0] == 24 && merged.strides[1][0] == 1);
}

TEST(a_common_permutation_is_one_dimension) {
  const Geometry merged = merge_dimensions({2, 3, 4}, {{12, 1, 3}, {12, 1, 3}});
  CHECK(merged.rank == 1 && merged.sizes[0] == 24);
}

TEST(a_broadcast_operand_splits_where_it_must) {
  const Geometry merged = merge_dimensions({2, 3, 4}, {{12, 4, 1}, {0, 1, 0}});
  CHECK(merged.rank == 3);
  CHECK(merged.sizes[0] == 4 && merged.sizes[1] == 3 && merged.sizes[2] == 2);
  CHECK(merged.strides[1][0] == 0 && merged.strides[1][1] == 1 && merged.strides[1][2] == 0);
}

TEST(a_row_slice_keeps_its_pitch) {
  const Geometry merged = merge_dimensions({8, 100}, {{100, 1}, {128, 1}});
  CHECK(merged.rank == 2 && merged.sizes[0] == 100 && merged.strides[1][1] == 128);
}

TEST(single_elements_and_extents_of_one) {
  CHECK(merge_dimensions({}, {{}, {}}).rank == 1);
  CHECK(merge_dimensions({1, 1}, {{7, 9}, {1, 1}}).sizes[0] == 1);
  CHECK(merge_dimensions({1, 5, 1}, {{5, 1, 1}, {99, 1, 42}}).rank == 1);
}

TEST(too_many_dimensions_are_reported) {
  std::vector<long long> sizes(13, 2), packed(13), gaps(13);
  for (int d = 0; d < 13; ++d) {
    packed[12 - d] = 1LL << d;
    gaps[12 - d] = 1LL << (2 * d);
  }
  CHECK(merge_dimensions(sizes, {packed, gaps}).rank == 0);
  CHECK(merge_dimensions(sizes, {packed, packed}).rank == 1);
}

TEST(fast_division_is_exact) {
  const long long limit = (1LL << 31) - 1;
  for (long long divisor : {1LL, 2LL, 3LL, 5LL, 7LL, 127LL, 128LL, 129LL, 1000003LL, 1LL << 30, (1LL << 30) + 1, limit,
                            limit + 1, limit * 9}) {
    const FastDivisor fast(divisor);
    for (long long near :
         {0LL, 1LL, divisor, 2 * divisor, limit / divisor * divisor, limit, limit + 1, limit * 5, divisor * 1001}) {
      for (long long dividend = near > 2 ? near - 2 : 0; dividend <= near + 2; ++dividend) {
        CHECK(fast.quotient(dividend) == dividend / divisor);
      }
    }
  }
}
