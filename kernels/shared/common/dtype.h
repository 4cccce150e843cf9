// sluice's floating-point types as run-time values, and their 16-byte words.
#pragma once

namespace sluice {

enum class DType : int { float32 = 0, float16 = 1, bfloat16 = 2, float64 = 3 };
inline constexpr DType kDTypes[] = {DType::float32, DType::float16, DType::bfloat16, DType::float64};

constexpr unsigned long size_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 4;
    case DType::float64: return 8;
    default: return 2;
  }
}

constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

inline constexpr int kWordBytes = 16;  // the widest access to global or shared memory; tiles move in words
constexpr int word_elements(DType dtype) { return kWordBytes / static_cast<int>(size_of(dtype)); }

constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "float32";
    case DType::float16: return "float16";
    case DType::bfloat16: return "bfloat16";
    default: return "float64";
  }
}

}  // namespace sluice
