// A chain along the rows of a block that other CPU kernels hold in the cache.
#pragma once

#include "kernels/common/int_math.h"
#include "kernels/stages/evaluate_cpu.h"

namespace sluice {
namespace {

template <class T>
class CpuChain {
 public:
  // Neighbours in a block are `step` apart in dimension `walked` of the operands.
  template <int Rank>
  CpuChain(const Program& program, const Operand<Rank>* operands, int walked, long long step = 1) {
    Operand<1> rows[kMaxOperands];
    for (int k = 0; k < program.operands; ++k) {
      rows[k] = {operands[k].data, operands[k].dtype, {operands[k].strides[walked] * step}};
    }
    constexpr long long kOne = 1;
    chain_ = make_chain_arguments<T, 1>(program, rows, 1, &kOne);
    has_operands_ = program.operands > 0;
  }

  // `offset_of(k)`: of the first value's element in operand k.
  template <class OffsetOf>
  void run(T* values, long long count, const OffsetOf& offset_of) const {
    if (chain_.count == 0) return;
    for (long long i = 0; i < count; i += kCpuBlock) {
      evaluate_block(chain_, values + i, static_cast<int>(min_of<long long>(kCpuBlock, count - i)),
                     [&](int k) { return offset_of(k) + i * chain_.operands[k].strides[0]; });
    }
  }

  // Over `rows` rows of `count` values, `pitch` apart; what is between them may change. `offset_of(k, row)`.
  template <class OffsetOf>
  void run_rows(T* values, long long pitch, long long count, long long rows, const OffsetOf& offset_of) const {
    if (!has_operands_) return run(values, rows * pitch, [](int) { return 0LL; });
    for (long long r = 0; r < rows; ++r) run(values + r * pitch, count, [&](int k) { return offset_of(k, r); });
  }

 private:
  ChainArguments<T, 1> chain_;
  bool has_operands_;
};

}  // namespace
}  // namespace sluice
