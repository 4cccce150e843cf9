// Chains that kernels run without the interpreter: at most three stages, each a SiLU, or a product or a sum with a
// number or one tensor. LFM2's gates and a residual after SiLU are such chains. The results have the interpreter's
// bits, because both call `evaluate`.
#pragma once

#include <algorithm>

#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/stages/evaluate.cuh"
#include "kernels/shared/stages/program.h"

namespace sluice {

inline constexpr int kLightStages = 3;

enum class LightOp : unsigned char { silu, mul, add };

template <class T>
struct LightStage {
  LightOp op;
  T number, alpha;     // the other factor or summand, and the factor that `add` gives it
  Operand<3> operand;  // (sequence, channel, token); absent: use the number
};

template <class T>
struct LightChain {
  int count;
  LightStage<T> stages[kLightStages];
};

inline bool is_light(const Stage& stage) {
  if (stage.op == Op::silu) return true;
  return (stage.op == Op::mul || stage.op == Op::add) && stage.operand[1] < 0 && stage.operand[2] < 0;
}

inline bool is_light(const Program& program) {
  return program.count <= kLightStages &&
         std::all_of(program.stages, program.stages + program.count, [](const Stage& s) { return is_light(s); });
}

// Whether the chain is empty or a single SiLU.
inline bool is_silu_at_most(const Program& program) {
  return program.empty() || (program.count == 1 && program.stages[0].op == Op::silu);
}

// For a light program.
template <class T>
LightChain<T> make_light_chain(const Program& program, const Operand<3>* operands) {
  LightChain<T> chain{};
  chain.count = program.count;
  for (int s = 0; s < program.count; ++s) {
    const Stage& stage = program.stages[s];
    LightStage<T>& light = chain.stages[s];
    light.op = stage.op == Op::silu ? LightOp::silu : stage.op == Op::mul ? LightOp::mul : LightOp::add;
    light.number = static_cast<T>(stage.number[0]);
    light.alpha = static_cast<T>(stage.number[1]);
    if (stage.operand[0] >= 0) light.operand = operands[stage.operand[0]];
  }
  return chain;
}

template <class Element, class T>
__device__ __forceinline__ T silu_of(T value) {
  constexpr Precision kPrecision = sizeof(Element) == 2 ? Precision::half : Precision::single;
  return evaluate<Op::silu, kPrecision>(value, Parameters<T>{});
}

// `load(others)` gives the values of the stage's tensor. All branches are uniform over the grid.
template <class Element, int Count, class T, class Load>
__device__ __forceinline__ void run_light_stage(const LightStage<T>& stage, T (&values)[Count], const Load& load) {
  if (stage.op == LightOp::silu) {
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] = silu_of<Element>(values[i]);
    return;
  }
  T others[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) others[i] = stage.number;
  if (stage.operand.exists()) load(others);
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const Parameters<T> parameters{{others[i], stage.alpha, T(0)}};
    values[i] =
        stage.op == LightOp::mul ? evaluate<Op::mul>(values[i], parameters) : evaluate<Op::add>(values[i], parameters);
  }
}

}  // namespace sluice
