// Estimated instructions of a chain for one element, for plans that decide where to run it: Snake's and SiLU's are
// measured (plan.cpp), the others follow from what they resemble.
#pragma once

#include "kernels/shared/stages/program.h"

namespace sluice {

constexpr int stage_work(const Stage& stage) {
  if (stage.op == Op::snake) return 50;
  if (stage.op == Op::cpp) return 25;
  const bool is_function = in_half(stage.op) != stage.op;
  return !is_function ? 2 : stage.precision == Precision::half ? 10 : 25;
}

inline int chain_work(const Program& program) {
  int work = 0;
  for (int s = 0; s < program.count; ++s) work += stage_work(program.stages[s]);
  return work;
}

}  // namespace sluice
