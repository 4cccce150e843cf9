// Runs a chain on the CPU over blocks that stay in the L1 cache: the same functors as on the GPU, one
// loop a stage.
#pragma once

#include <type_traits>

#include "kernels/common/half.h"
#include "kernels/stages/functors.h"
#include "kernels/stages/program.h"

namespace sluice {
namespace {  // a copy for each instruction set (kernels/common/instruction_set.h)

// A block of values and up to three blocks of tensor parameters: 512 doubles each are 16 KiB together.
inline constexpr int kCpuBlock = 512;

template <class T>
void load_block(const void* data, DType dtype, long long offset, long long stride, int count, T* to) {
  with_host_element(dtype, [&](auto* tag) {
    const auto* from = static_cast<std::remove_reference_t<decltype(tag)>>(const_cast<void*>(data)) + offset;
    for (int i = 0; i < count; ++i) to[i] = load_host<T>(from[i * stride]);
  });
}

template <class T>
void store_block(void* data, DType dtype, long long offset, long long stride, int count, const T* from) {
  with_host_element(dtype, [&](auto* tag) {
    auto* to = static_cast<std::remove_reference_t<decltype(tag)>>(data) + offset;
    for (int i = 0; i < count; ++i) store_host(to[i * stride], from[i]);
  });
}

// `offset_of(operand)` is the offset of the block's first element; dimension 0 is walked.
template <class T, int Rank, class OffsetOf>
void evaluate_block(const ChainArguments<T, Rank>& chain, T* values, int count, OffsetOf&& offset_of) {
  T parameters[kMaxParameters][kCpuBlock];
  for (int s = 0; s < chain.count; ++s) {
    const auto& stage = chain.headers[s];
    using Header = std::remove_cvref_t<decltype(stage)>;
    const Op op = Header::op(stage.control);
    const StageKind kind = Header::kind(stage.control);
    if (kind == StageKind::cast) {
      with_host_element(Header::dtype(stage.control), [&](auto* tag) {
        for (int i = 0; i < count; ++i) {
          std::remove_reference_t<decltype(*tag)> rounded;
          store_host(rounded, values[i]);
          values[i] = load_host<T>(rounded);
        }
      });
      continue;
    }
    if (kind == StageKind::numbers) {
      const Parameters<T> numbers = {{stage.number[0], stage.number[1], stage.number[2]}};
      with_stage(op, [&](auto evaluate) {
        for (int i = 0; i < count; ++i) values[i] = evaluate(values[i], numbers);
      });
      continue;
    }
    for (int p = 0; p < kMaxParameters; ++p) {
      const int k = chain.operand[s][p];
      if (k < 0) {
        for (int i = 0; i < count; ++i) parameters[p][i] = stage.number[p];
      } else {
        load_block(chain.operands[k].data, chain.operands[k].dtype, offset_of(k), chain.operands[k].strides[0], count,
                   parameters[p]);
      }
    }
    with_parametric(op, [&](auto evaluate) {
      for (int i = 0; i < count; ++i) {
        values[i] = evaluate(values[i], Parameters<T>{{parameters[0][i], parameters[1][i], parameters[2][i]}});
      }
    });
  }
}

}  // namespace
}  // namespace sluice
