// The stages that a chain is made of.
#pragma once

namespace sluice {

enum class Op : unsigned char {
#define SLUICE_STAGE(name, ...) name,
#define SLUICE_SPECIAL_STAGE(name) name,
#include "kernels/stages/stages.def"
// What kernels are told of those with functions in half precision.
#define SLUICE_FUNCTION_STAGE(name, ...) name##_in_half,
#include "kernels/stages/stages.def"
};

// How exact the functions of a stage are in float. A chain from a half type into a half type has their cheaper forms
// (functions_half.h), whose error its one rounding hides; any other has float32's (functions_single.h). So the choice
// is one of the dtypes of what an op reads and what the chain ends in, made once for all forms of the chain
// (Program::set_precision).
enum class Precision : unsigned char { single, half };

constexpr Op in_half(Op op) {
  switch (op) {
#define SLUICE_FUNCTION_STAGE(name, ...) \
  case Op::name: return Op::name##_in_half;
#include "kernels/stages/stages.def"
    default: return op;
  }
}

// Whether a wide path runs the stage where its first parameter alone is a tensor.
constexpr bool is_arithmetic(Op op) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(name, ...) case Op::name:
#include "kernels/stages/stages.def"
    return true;
    default: return false;
  }
}

inline constexpr int kMaxParameters = 3;

}  // namespace sluice
