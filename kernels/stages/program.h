// A stage chain as a small program: op codes, numbers, and operands with strides.
//
// A program is plain data. It travels to a kernel as a __grid_constant__ parameter and is run there
// by the interpreter (stages/interpreter.cuh), or on the CPU by stages/evaluate_cpu.h.
#pragma once

#include "kernels/common/dtype.h"
#include "kernels/stages/stage_list.h"

namespace sluice {

inline constexpr int kMaxStages = 24;
inline constexpr int kMaxOperands = 12;

struct Stage {
  Op op;
  DType dtype;                              // of `cast`
  signed char operand[kMaxParameters];      // index of a tensor operand, or -1: the number counts
  double number[kMaxParameters];
};

struct Program {
  int count = 0;
  int operands = 0;  // how many operands the stages name: 1 + the highest index
  Stage stages[kMaxStages];

  bool empty() const { return count == 0; }
};

// A tensor operand, broadcast to `Rank` dimensions: a stride of 0 repeats it. Strides in elements.
template <int Rank>
struct Operand {
  const void* data;
  DType dtype;
  long long strides[Rank];
};

// A program as a kernel takes it: numbers in the compute type T, operands beside them.
template <class T, int Rank>
struct ChainArguments {
  struct Stage {
    Op op;
    DType dtype;
    signed char operand[kMaxParameters];
    signed char tensors;  // how many parameters are tensors
    T number[kMaxParameters];
  };
  int count;
  Stage stages[kMaxStages];
  Operand<Rank> operands[kMaxOperands];
};

template <class T, int Rank>
ChainArguments<T, Rank> make_chain_arguments(const Program& program, const Operand<Rank>* operands) {
  ChainArguments<T, Rank> chain;
  chain.count = program.count;
  for (int s = 0; s < program.count; ++s) {
    const Stage& from = program.stages[s];
    auto& to = chain.stages[s];
    to.op = from.op;
    to.dtype = from.dtype;
    to.tensors = 0;
    for (int p = 0; p < kMaxParameters; ++p) {
      to.operand[p] = from.operand[p];
      to.number[p] = static_cast<T>(from.number[p]);
      to.tensors += from.operand[p] >= 0;
    }
  }
  for (int k = 0; k < program.operands; ++k) chain.operands[k] = operands[k];
  return chain;
}

}  // namespace sluice
