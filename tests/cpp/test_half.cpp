#include <cmath>
#include <cstring>

#include "kernels/shared/common/half.h"
#include "tests/cpp/check.h"

using namespace sluice;

TEST(every_half_survives_a_round_trip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float value = to_float(half);
    const Half back = to_half(value);
    CHECK(std::isnan(value) ? (back.bits & 0x7fff) > 0x7c00 : back.bits == half.bits);
    const BFloat16 bfloat{static_cast<std::uint16_t>(bits)};
    const float wide = to_float(bfloat);
    const BFloat16 again = to_bfloat16(wide);
    CHECK(std::isnan(wide) ? (again.bits & 0x7fff) > 0x7f80 : again.bits == bfloat.bits);
  }
}

TEST(halves_round_to_nearest_even) {
  CHECK(to_half(1.0f + 0x1p-11f).bits == 0x3c00);      // a tie goes to the even neighbour below
  CHECK(to_half(1.0f + 3 * 0x1p-11f).bits == 0x3c02);  // and to the one above
  CHECK(to_half(1.0f + 0x1p-11f + 0x1p-20f).bits == 0x3c01);
  CHECK(to_half(65519.0f).bits == 0x7bff && to_half(65520.0f).bits == 0x7c00);
  CHECK(to_half(0x1p-25f).bits == 0x0000 && to_half(0x1.8p-25f).bits == 0x0001);
  CHECK(to_half(-0.0f).bits == 0x8000);
  CHECK(to_bfloat16(1.0f + 0x1p-8f).bits == 0x3f80 && to_bfloat16(1.0f + 3 * 0x1p-8f).bits == 0x3f82);
  CHECK(to_bfloat16(3.4e38f).bits == 0x7f80);
}
