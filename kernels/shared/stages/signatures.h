// The stages' names, parameters and torch's defaults, for the parser and for Python
// (torch.ops.sluice._stage_signatures).
#pragma once

#include <limits>

#include "kernels/shared/stages/stage_list.h"

namespace sluice {

// The default of a required parameter.
inline constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct StageParameter {
  const char* name = nullptr;
  double number = kRequired;  // the default
};

struct StageSignature {
  const char* name;
  Op op;
  StageParameter parameter[kMaxParameters];  // the stage's parameters, then nameless parameters

  constexpr int parameters() const {
    int count = 0;
    while (count < kMaxParameters && parameter[count].name != nullptr) ++count;
    return count;
  }
};

inline constexpr StageSignature kSignatures[] = {
#define SLUICE_STAGE(name, ...) {#name, Op::name, {__VA_ARGS__}},
#define SLUICE_ALIAS(name, stage, ...) {#name, Op::stage, {__VA_ARGS__}},
#include "kernels/shared/stages/stages.def"
};

// By the stage's own name. Rows are in the order of Op, whose number is the index.
constexpr const StageSignature& signature_of(Op op) { return kSignatures[static_cast<int>(op)]; }

}  // namespace sluice
