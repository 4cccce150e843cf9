// A chain along the rows of a block of values that other CPU kernels hold in the cache.
#pragma once

#include "kernels/shared/cpu/instruction_set.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

// `offsets[k]`: of the first value's element in operand k, whose dimension 0 is walked. In its own source: the stages
// of a chain take most of the compile time.
template <InstructionSet set, class T>
void run_chain(const ChainArguments<T, 1>& chain, T* values, long long count, const long long* offsets);

#ifdef SLUICE_INSTRUCTION_SET
namespace {  // a copy for each instruction set

template <class T>
class CpuChain {
 public:
  // Consecutive values are `step` apart in dimension `walked` of the operands.
  template <int Rank>
  CpuChain(const Program& program, const Operand<Rank>* operands, int walked, long long step = 1)
      : operands_(program.operands) {
    Operand<1> rows[kMaxOperands];
    for (int k = 0; k < program.operands; ++k) {
      rows[k] = {operands[k].data, operands[k].dtype, {operands[k].strides[walked] * step}};
    }
    constexpr long long kOne = 1;
    chain_ = make_chain_arguments<T, 1>(program, rows, 1, &kOne);
  }

  // `offset_of(k)`: the offset of the first value's element in operand k.
  template <class OffsetOf>
  void run(T* values, long long count, const OffsetOf& offset_of) const {
    if (chain_.count == 0) return;
    long long offsets[kMaxOperands];
    for (int k = 0; k < operands_; ++k) offsets[k] = offset_of(k);
    run_chain<kInstructionSet>(chain_, values, count, offsets);
  }

  // Over `rows` rows of `count` values, `pitch` apart; values between them may change. `offset_of(k, row)`.
  template <class OffsetOf>
  void run_rows(T* values, long long pitch, long long count, long long rows, const OffsetOf& offset_of) const {
    if (operands_ == 0) return run(values, rows * pitch, [](int) { return 0LL; });
    for (long long r = 0; r < rows; ++r) run(values + r * pitch, count, [&](int k) { return offset_of(k, r); });
  }

 private:
  ChainArguments<T, 1> chain_;
  int operands_;
};

}  // namespace
#endif

}  // namespace sluice
