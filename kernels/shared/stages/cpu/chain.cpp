#include "kernels/shared/stages/cpu/chain.h"

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/stages/cpu/evaluate.h"

namespace sluice {
namespace {

// One stage of numbers, panel by panel in place: through registers, a function would store each vector three times.
// Returns the number of values processed.
template <class T>
long long run_in_place(const ChainArguments<T, 1>& chain, T* values, long long count) {
  using Header = typename ChainArguments<T, 1>::Header;
  const Header& stage = chain.headers[0];
  if (chain.count != 1 || Header::kind(stage.control) != StageKind::numbers) return 0;
  const Parameters<T> numbers = {{stage.number[0], stage.number[1], stage.number[2]}};
  long long i = 0;
  with_stage<T>(Header::op(stage.control), [&]<Op op, Precision precision>(Evaluate<op, precision>) {
    for (; i + kPanel<T> <= count; i += kPanel<T>) evaluate_in_memory<op, precision>(values + i, numbers);
  });
  return i;
}

template <class T>
void run_in_blocks(const ChainArguments<T, 1>& chain, T* values, long long count, const long long* offsets) {
  for (long long i = run_in_place(chain, values, count); i < count; i += kCpuBlock) {
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
