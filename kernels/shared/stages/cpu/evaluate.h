// Evaluates a chain on the CPU: the same functors as on the GPU, over panels of values that stay in registers from one
// stage to the next, with one switch per stage and panel.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/shared/cpu/vector.h"
#include "kernels/shared/stages/functors.h"
#include "kernels/shared/stages/program.h"

namespace sluice {
namespace {  // a copy for each instruction set (kernels/shared/cpu/instruction_set.h)

// A tensor parameter's elements for one panel: contiguous, or one for all.
struct PanelOperand {
  const void* data;
  DType dtype;
  bool repeats;
};

template <class T>
SLUICE_HOST_DEVICE T load_one(const void* data, DType dtype) {
  T value{};
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    value = load_host<T>(*static_cast<std::remove_reference_t<decltype(tag)>>(const_cast<void*>(data)));
  });
  return value;
}

template <class T>
SLUICE_HOST_DEVICE void round_panel(Panel<T>& values, DType dtype) {
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    for_each_vector([&](int j) SLUICE_IN_PLACE {
      std::remove_reference_t<decltype(*tag)> rounded[kLanes<T>];
      store_vector<T>(rounded, values.vectors[j]);
      values.vectors[j] = load_vector<T>(rounded);
    });
  });
}

// Few instructions: worth a copy for each vector of a panel.
constexpr bool is_light(Op op) {
  return is_arithmetic(op) || op == Op::square || op == Op::abs || op == Op::neg || op == Op::sqrt || op == Op::rsqrt ||
         op == Op::clamp || op == Op::relu || op == Op::leaky_relu;
}

// Snake without the far reduction of its angle (reductions.h): the same bits if every angle is near.
template <Precision precision, class T>
SLUICE_HOST_DEVICE T snake_of_near(T x, const Parameters<T>& p) {
  return Functions<T, precision>::snake_of_near(x, p.value[0], p.value[1] + p.value[2]);
}
template <Op op, class T>
inline constexpr bool kMayBeNear = op == Op::snake && sizeof(T) == sizeof(float) && kReducesNear;

// Functions with a vector version in this instruction set (target.h).
#if defined(__AVX512F__)
template <Op op, Precision precision, class T>
inline constexpr bool kTakesVectors =
    std::is_same_v<T, float> &&
    (op == Op::exp || (precision == Precision::half && (op == Op::silu || op == Op::gelu || op == Op::gelu_tanh ||
                                                        op == Op::sigmoid || op == Op::tanh)));

template <Op op, Precision precision>
SLUICE_HOST_DEVICE FloatVector evaluate_vector(FloatVector x) {
  using Function = Functions<float, precision>;
  if constexpr (op == Op::exp) {
    return Function::exp(x);
  } else if constexpr (op == Op::silu) {
    return Function::silu(x);
  } else if constexpr (op == Op::gelu) {
    return Function::gelu(x);
  } else if constexpr (op == Op::gelu_tanh) {
    return Function::gelu_tanh(x);
  } else if constexpr (op == Op::sigmoid) {
    return Function::sigmoid(x);
  } else {
    static_assert(op == Op::tanh);
    return Function::tanh(x);
  }
}
#else
template <Op, Precision, class>
inline constexpr bool kTakesVectors = false;
#endif

// The others work on a panel in memory: an array indexed in a loop is never in registers.
template <class T, class Body>
SLUICE_HOST_DEVICE void each_in_memory(T* values, const Body& body) {
#pragma GCC unroll 1
  for (int i = 0; i < kPanel<T>; i += kLanes<T>) {
    store_lanes(values + i,
                each_lane<T>(load_lanes(values + i), [&](T x, int lane) SLUICE_IN_PLACE { return body(x, i + lane); }));
  }
}

// `parameters_of(i)`: of the panel's i-th element.
template <Op op, Precision precision, class T, class ParametersOf>
SLUICE_HOST_DEVICE void evaluate_each(T* values, const ParametersOf& parameters_of) {
  if constexpr (kMayBeNear<op, T>) {
    int far = 0;
    for (int i = 0; i < kPanel<T>; ++i) far |= is_near(parameters_of(i).value[0] * values[i]) ? 0 : 1;
    if (far == 0) {
      return each_in_memory(values,
                            [&](T x, int i) SLUICE_IN_PLACE { return snake_of_near<precision>(x, parameters_of(i)); });
    }
  }
  each_in_memory(values, [&](T x, int i) SLUICE_IN_PLACE { return evaluate<op, precision>(x, parameters_of(i)); });
}

template <Op op, Precision precision, class T>
__attribute__((noinline)) void evaluate_in_memory(T* values, const Parameters<T>& numbers) {
  if constexpr (kTakesVectors<op, precision, T>) {
    for (int i = 0; i < kPanel<T>; i += kLanes<T>) {
      store_lanes(values + i, evaluate_vector<op, precision>(load_lanes(values + i)));
    }
  } else {
    const Parameters<T> kept = numbers;  // a copy that no store into the values changes
    evaluate_each<op, precision>(values, [&](int) SLUICE_IN_PLACE { return kept; });
  }
}

// The same with a tensor parameter.
template <Op op, Precision precision, class T>
__attribute__((noinline)) void evaluate_in_memory(T* values, const T (&parameters)[kMaxParameters][kPanel<T>]) {
  evaluate_each<op, precision>(values, [&](int i) SLUICE_IN_PLACE {
    return Parameters<T>{{parameters[0][i], parameters[1][i], parameters[2][i]}};
  });
}

template <class T, class Body>
SLUICE_HOST_DEVICE void through_memory(Panel<T>& values, const Body& body) {
  alignas(kVectorBytes) T elements[kPanel<T>];
  store_panel<T>(elements, kDTypeOf<T>, values);
  body(elements);
  values = load_panel<T>(elements, kDTypeOf<T>);
}

template <class T>
SLUICE_HOST_DEVICE void evaluate_numbers(Op op, Panel<T>& values, const Parameters<T>& numbers) {
  with_stage<T>(op, [&]<Op kOp, Precision precision>(Evaluate<kOp, precision> evaluate) SLUICE_IN_PLACE {
    if constexpr (is_light(kOp)) {
      for_each_vector([&](int j) SLUICE_IN_PLACE {
        values.vectors[j] =
            each_lane<T>(values.vectors[j], [&](T x, int) SLUICE_IN_PLACE { return evaluate(x, numbers); });
      });
    } else {
      through_memory(values,
                     [&](T* elements) SLUICE_IN_PLACE { evaluate_in_memory<kOp, precision>(elements, numbers); });
    }
  });
}

// Add, sub, mul or div with a tensor, which is read when it is needed.
template <class T>
SLUICE_HOST_DEVICE void evaluate_arithmetic(Op op, Panel<T>& values, const PanelOperand& operand,
                                            const Parameters<T>& numbers) {
  with_host_element(operand.dtype, [&](auto* tag) SLUICE_IN_PLACE {
    const auto* const other = static_cast<std::remove_reference_t<decltype(tag)>>(const_cast<void*>(operand.data));
    with_arithmetic(op, [&](auto evaluate) SLUICE_IN_PLACE {
      for_each_vector([&](int j) SLUICE_IN_PLACE {
        T parameter[kLanes<T>];
        store_vector<T>(parameter, load_vector<T>(other + j * kLanes<T>));
        values.vectors[j] = each_lane<T>(values.vectors[j], [&](T x, int i) SLUICE_IN_PLACE {
          return evaluate(x, Parameters<T>{{parameter[i], numbers.value[1], numbers.value[2]}});
        });
      });
    });
  });
}

template <class T>
SLUICE_HOST_DEVICE void evaluate_elementwise(Op op, Panel<T>& values,
                                             const T (&parameters)[kMaxParameters][kPanel<T>]) {
  with_parametric<T>(op, [&]<Op kOp, Precision precision>(Evaluate<kOp, precision>) SLUICE_IN_PLACE {
    through_memory(values,
                   [&](T* elements) SLUICE_IN_PLACE { evaluate_in_memory<kOp, precision>(elements, parameters); });
  });
}

// One stage with at least one tensor parameter.
template <class T, class OperandAt>
SLUICE_HOST_DEVICE void evaluate_with_tensors(Op op, StageKind kind, const signed char (&operands)[kMaxParameters],
                                              const T (&given)[kMaxParameters], Panel<T>& values,
                                              const OperandAt& operand_at) {
  Parameters<T> numbers = {{given[0], given[1], given[2]}};
  PanelOperand tensors[kMaxParameters];
  int wide = 0;  // operands with an element per value
  for (int p = 0; p < kMaxParameters; ++p) {
    if (operands[p] < 0) continue;
    tensors[p] = operand_at(operands[p]);
    if (tensors[p].repeats) {
      numbers.value[p] = load_one<T>(tensors[p].data, tensors[p].dtype);
    } else {
      wide |= 1 << p;
    }
  }
  if (wide == 0) return evaluate_numbers(op, values, numbers);
  if (kind == StageKind::arithmetic) return evaluate_arithmetic(op, values, tensors[0], numbers);
  T parameters[kMaxParameters][kPanel<T>];
  for (int p = 0; p < kMaxParameters; ++p) {
    if (wide >> p & 1) {
      store_panel<T>(parameters[p], kDTypeOf<T>, load_panel<T>(tensors[p].data, tensors[p].dtype));
    } else {
      for (T& parameter : parameters[p]) parameter = numbers.value[p];
    }
  }
  evaluate_elementwise(op, values, parameters);
}

// `operand_at(k)` is operand k's PanelOperand.
template <class T, int Rank, class OperandAt>
SLUICE_HOST_DEVICE void evaluate_panel(const ChainArguments<T, Rank>& chain, Panel<T>& values,
                                       const OperandAt& operand_at) {
  using Header = typename ChainArguments<T, Rank>::Header;
  for (int s = 0; s < chain.count; ++s) {
    const Header& stage = chain.headers[s];
    const StageKind kind = Header::kind(stage.control);
    if (kind == StageKind::numbers) {
      const Parameters<T> numbers = {{stage.number[0], stage.number[1], stage.number[2]}};
      evaluate_numbers(Header::op(stage.control), values, numbers);
    } else if (kind == StageKind::cast) {
      round_panel(values, Header::dtype(stage.control));
    } else {
      evaluate_with_tensors(Header::op(stage.control), kind, chain.operand[s], stage.number, values, operand_at);
    }
  }
}

// Values of a block; an op holds one or two blocks in the L1 cache.
inline constexpr int kCpuBlock = 512;

template <class T>
void load_block(const void* data, DType dtype, long long offset, long long stride, int count, T* to) {
  with_host_element(dtype, [&](auto* tag) SLUICE_IN_PLACE {
    const auto* from = static_cast<std::remove_reference_t<decltype(tag)>>(const_cast<void*>(data)) + offset;
    if (stride == 1) {
      for (int i = 0; i < count; ++i) to[i] = load_host<T>(from[i]);
    } else {
      for (int i = 0; i < count; ++i) to[i] = load_host<T>(from[i * stride]);
    }
  });
}

// `offset_of(operand)`: the offset of the block's first element; dimension 0 is walked.
template <class T, int Rank, class OffsetOf>
void evaluate_block(const ChainArguments<T, Rank>& chain, T* values, int count, const OffsetOf& offset_of) {
  T gathered[kMaxOperands][kPanel<T>];
  for (int first = 0; first < count; first += kPanel<T>) {
    const int here = count - first < kPanel<T> ? count - first : kPanel<T>;
    const auto operand_at = [&](int k) -> PanelOperand {
      const auto& operand = chain.operands[k];
      const long long stride = operand.strides[0], offset = offset_of(k) + first * stride;
      const char* const data = static_cast<const char*>(operand.data) + offset * size_of(operand.dtype);
      if (stride == 0 || (stride == 1 && here == kPanel<T>)) return {data, operand.dtype, stride == 0};
      load_block(operand.data, operand.dtype, offset, stride, here, gathered[k]);
      return {gathered[k], kDTypeOf<T>, false};
    };
    T padded[kPanel<T>] = {};
    T* const panel = here == kPanel<T> ? values + first : padded;
    if (panel == padded) std::memcpy(padded, values + first, here * sizeof(T));
    Panel<T> registers = load_panel<T>(panel, kDTypeOf<T>);
    evaluate_panel(chain, registers, operand_at);
    store_panel(panel, kDTypeOf<T>, registers);
    if (panel == padded) std::memcpy(values + first, padded, here * sizeof(T));
  }
}

}  // namespace
}  // namespace sluice
