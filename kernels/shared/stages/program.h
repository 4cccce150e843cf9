// A stage chain as a small program: op codes, numbers, and operands with strides.
//
// A program is plain data. It is passed to a kernel as a __grid_constant__ parameter and run there by the interpreter
// (stages/interpreter.cuh), or on the CPU by cpu/stages/evaluate.h.
#pragma once

#include <algorithm>

#include "kernels/shared/common/operand.h"
#include "kernels/shared/common/qualifiers.h"
#include "kernels/shared/stages/stage_list.h"

namespace sluice {

inline constexpr int kMaxStages = 24;
inline constexpr int kMaxOperands = 12;

struct Stage {
  Op op;
  Precision precision;                  // precision of its functions; parsing leaves it at single
  DType dtype;                          // dtype of `cast`
  int source;                           // number of the CppStage of `cpp`
  signed char operand[kMaxParameters];  // index of a tensor operand, or -1: use the number
  double number[kMaxParameters];
};

// A stage's op as kernels see it: with its precision, if there are two.
constexpr Op code_of(const Stage& stage) { return stage.precision == Precision::half ? in_half(stage.op) : stage.op; }

struct Program {
  int count = 0;
  int operands = 0;  // 1 + the highest operand index of the stages
  Stage stages[kMaxStages];

  // A kilobyte, mostly unused, and a call makes several: stages from `count` on are not initialised.
  Program() {}
  Program(const Program& other) { *this = other; }
  Program& operator=(const Program& other) {
    count = other.count;
    operands = other.operands;
    std::copy_n(other.stages, other.count, stages);
    return *this;
  }

  // For a chain from values of one type to values of another.
  void set_precision(DType from, DType to) {
    for (int s = 0; s < count; ++s)
      stages[s].precision = is_half(from) && is_half(to) ? Precision::half : Precision::single;
  }

  // Prepends the addition of a new operand, the last operand; false if it does not fit.
  bool prepend_addition() {
    if (count == kMaxStages || operands == kMaxOperands) return false;
    std::copy_backward(stages, stages + count, stages + count + 1);
    stages[0] = {.op = Op::add,
                 .precision = Precision::single,
                 .dtype = DType::float32,
                 .source = -1,
                 .operand = {static_cast<signed char>(operands), -1, -1},
                 .number = {0.0, 1.0, 0.0}};
    ++count;
    ++operands;
    return true;
  }

  bool empty() const { return count == 0; }
  bool has_cpp() const { return has(Op::cpp); }
  bool emits() const { return has(Op::emit); }
  bool has(Op op) const {
    for (int s = 0; s < count; ++s) {
      if (stages[s].op == op) return true;
    }
    return false;
  }
};

// How a stage runs: cast rounds; numbers has only numbers; arithmetic is add, sub, mul or div with one tensor;
// elementwise is everything else.
enum class StageKind : unsigned char { numbers, arithmetic, elementwise, cast };

// A program as a kernel takes it: numbers in the compute type T, and operands. One 32-bit number has all that a stage
// needs to branch.
template <class T, int Rank>
struct ChainArguments {
  struct Header {
    unsigned control;  // code_of the stage, kind and the dtype of a cast, a byte each
    T number[kMaxParameters];

    SLUICE_HOST_DEVICE static Op op(unsigned control) { return static_cast<Op>(control & 0xff); }
    SLUICE_HOST_DEVICE static StageKind kind(unsigned control) { return static_cast<StageKind>(control >> 8 & 0xff); }
    SLUICE_HOST_DEVICE static DType dtype(unsigned control) { return static_cast<DType>(control >> 16); }
  };
  struct Tensor : Operand<Rank> {
    long long extent;  // elements from `data` to the end of the last element
  };
  int count;  // stages
  Header headers[kMaxStages];
  signed char operand[kMaxStages][kMaxParameters];
  Tensor operands[kMaxOperands];
};

inline StageKind kind_of(const Stage& stage) {
  if (stage.op == Op::cast) return StageKind::cast;
  int tensors = 0;
  for (signed char operand : stage.operand) tensors += operand >= 0;
  if (tensors == 0) return StageKind::numbers;
  const bool wide = tensors == 1 && stage.operand[0] >= 0 && is_arithmetic(stage.op);
  return wide ? StageKind::arithmetic : StageKind::elementwise;
}

// For a chain over `rank` <= Rank dimensions of `sizes`; the operands may have more.
template <class T, int Rank, int MaxRank>
ChainArguments<T, Rank> make_chain_arguments(const Program& program, const Operand<MaxRank>* operands, int rank,
                                             const long long* sizes) {
  ChainArguments<T, Rank> chain{};
  chain.count = program.count;
  for (int s = 0; s < program.count; ++s) {
    const Stage& stage = program.stages[s];
    auto& header = chain.headers[s];
    header.control = static_cast<unsigned>(code_of(stage)) | static_cast<unsigned>(kind_of(stage)) << 8 |
                     static_cast<unsigned>(stage.dtype) << 16;
    for (int p = 0; p < kMaxParameters; ++p) {
      header.number[p] = static_cast<T>(stage.number[p]);
      chain.operand[s][p] = stage.operand[p];
    }
  }
  for (int k = 0; k < program.operands; ++k) {
    auto& tensor = chain.operands[k];
    tensor.data = operands[k].data;
    tensor.dtype = operands[k].dtype;
    tensor.extent = 1;
    for (int d = 0; d < rank; ++d) {
      tensor.strides[d] = operands[k].strides[d];
      tensor.extent += (sizes[d] - 1) * operands[k].strides[d];
    }
  }
  return chain;
}

}  // namespace sluice
