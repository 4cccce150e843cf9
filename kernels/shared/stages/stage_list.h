// The stages of chains.
#pragma once

namespace sluice {

enum class Op : unsigned char {
#define SLUICE_STAGE(name, ...) name,
#define SLUICE_SPECIAL_STAGE(name) name,
#include "kernels/shared/stages/stages.def"
// The codes of functions in half precision.
#define SLUICE_FUNCTION_STAGE(name, ...) name##_in_half,
#include "kernels/shared/stages/stages.def"
};

// The precision of a stage's functions in float. A chain from a half type into a half type has the cheaper ones
// (functions_half.h), whose error its one rounding hides; any other has float32's (functions_single.h). So the choice
// depends only on the dtypes of the op's input and the chain's result, and is made once for all forms of the chain
// (Program::set_precision).
enum class Precision : unsigned char { single, half };

constexpr Op in_half(Op op) {
  switch (op) {
#define SLUICE_FUNCTION_STAGE(name, ...) \
  case Op::name: return Op::name##_in_half;
#include "kernels/shared/stages/stages.def"
    default: return op;
  }
}

// Whether the stage has a wide path if only its first parameter is a tensor.
constexpr bool is_arithmetic(Op op) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(name, ...) case Op::name:
#include "kernels/shared/stages/stages.def"
    return true;
    default: return false;
  }
}

inline constexpr int kMaxParameters = 3;

}  // namespace sluice
