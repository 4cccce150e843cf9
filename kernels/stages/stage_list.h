// The stages that a chain is made of.
#pragma once

namespace sluice {

enum class Op : unsigned char {
#define SLUICE_STAGE(name, ...) name,
#define SLUICE_SPECIAL_STAGE(name) name,
#include "kernels/stages/stages.def"
};

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
