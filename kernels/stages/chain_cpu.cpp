#include "kernels/stages/chain_cpu.h"

#include "kernels/common/int_math.h"
#include "kernels/stages/evaluate_cpu.h"

namespace sluice {
namespace {

template <class T>
void run_in_blocks(const ChainArguments<T, 1>& chain, T* values, long long count, const long long* offsets) {
  for (long long i = 0; i < count; i += kCpuBlock) {
    evaluate_block(chain, values + i, static_cast<int>(min_of<long long>(kCpuBlock, count - i)),
                   [&](int k) { return offsets[k] + i * chain.operands[k].strides[0]; });
  }
}

}  // namespace

template <>
void run_chain<kInstructionSet>(const ChainArguments<float, 1>& chain, float* values, long long count,
                                const long long* offsets) {
  run_in_blocks(chain, values, count, offsets);
}

template <>
void run_chain<kInstructionSet>(const ChainArguments<double, 1>& chain, double* values, long long count,
                                const long long* offsets) {
  run_in_blocks(chain, values, count, offsets);
}

}  // namespace sluice
