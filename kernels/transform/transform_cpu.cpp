#include "kernels/common/int_math.h"
#include "kernels/stages/evaluate_cpu.h"
#include "kernels/transform/transform.h"

namespace sluice {
namespace {

long long offset_of(const TransformParams& params, long long row, const long long* strides) {
  long long offset = 0;
  for (int d = 1; d < params.rank; ++d) {
    offset += row % params.sizes[d] * strides[d];
    row /= params.sizes[d];
  }
  return offset;
}

template <class T>
void transform_as(const TransformParams& params, long long first, long long last) {
  const auto chain = make_chain_arguments<T, kMaxDims>(params.program, params.operands, params.rank, params.sizes);
  T values[kCpuBlock];
  while (first < last) {
    const long long row = first / params.sizes[0], begin = first % params.sizes[0];
    const int count = static_cast<int>(min_of<long long>(kCpuBlock, min_of(last - first, params.sizes[0] - begin)));
    const auto place = [&](const long long* strides) { return offset_of(params, row, strides) + begin * strides[0]; };
    load_block(params.input.data, params.input.dtype, place(params.input.strides), params.input.strides[0], count,
               values);
    evaluate_block(chain, values, count, [&](int k) { return place(chain.operands[k].strides); });
    store_block(params.output.data, params.output.dtype, place(params.output.strides), params.output.strides[0], count,
                values);
    first += count;
  }
}

}  // namespace

template <>
void transform_cpu<kInstructionSet>(const TransformParams& params, long long first, long long last) {
  if (params.input.dtype == DType::float64) {
    transform_as<double>(params, first, last);
  } else {
    transform_as<float>(params, first, last);
  }
}

}  // namespace sluice
