#include "kernels/transfer/wide_copy.h"

#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice::transfer {
namespace {

#if defined(__x86_64__)

// Whole cache lines; `target` is aligned to one.
__attribute__((target("avx2"))) void lines_avx2(char* target, const char* source, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    const auto* const from = reinterpret_cast<const __m256i*>(source + i);
    auto* const to = reinterpret_cast<__m256i*>(target + i);
    const __m256i a = _mm256_loadu_si256(from), b = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, a);
    _mm256_stream_si256(to + 1, b);
  }
}

void lines_sse2(char* target, const char* source, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 64) {
    const auto* const from = reinterpret_cast<const __m128i*>(source + i);
    auto* const to = reinterpret_cast<__m128i*>(target + i);
    const __m128i a = _mm_loadu_si128(from), b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2), d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
}

using Lines = void (*)(char*, const char*, std::int64_t);
const Lines lines = __builtin_cpu_supports("avx2") ? lines_avx2 : lines_sse2;

#endif

}  // namespace

void wide_copy(void* target, const void* source, std::int64_t bytes) {
  auto* to = static_cast<char*>(target);
  const auto* from = static_cast<const char*>(source);
#if defined(__x86_64__)
  if (bytes >= kPastCaches) {
    const auto head = static_cast<std::int64_t>(-reinterpret_cast<std::uintptr_t>(to) & 63);
    std::memcpy(to, from, static_cast<std::size_t>(head));
    const std::int64_t middle = (bytes - head) & ~std::int64_t{63};
    lines(to + head, from + head, middle);
    _mm_sfence();  // streaming stores are weakly ordered, and another thread starts a copy from this memory
    to += head + middle;
    from += head + middle;
    bytes -= head + middle;
  }
#endif
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace sluice::transfer
