// The stages' computations: one definition for the CPU, the GPU and the run-time linker.
//
// A stage maps a value and up to three parameters to a value, in float or double. Every file that
// includes this file is compiled without contraction (-fmad=false, -ffp-contract=off), so a product
// and a sum round twice everywhere and all forms of a chain agree; fused products are written out.
#pragma once

#include "kernels/shared/stages/functions.h"

namespace sluice {

// A stage's parameters: numbers, or tensor operands' elements for this value.
template <class T>
struct Parameters {
  T value[kMaxParameters];
};

// Comparisons such as x <= 0 and x < low are written so that a NaN passes through, as in torch.
template <Op op, Precision precision = Precision::single, class T>
SLUICE_HOST_DEVICE T evaluate(T x, const Parameters<T>& p) {
#ifndef __CUDACC_RTC__
  using std::abs;
#endif
  using Function = Functions<T, precision>;
  if constexpr (op == Op::add) {
    return x + p.value[1] * p.value[0];
  } else if constexpr (op == Op::sub) {
    return x - p.value[1] * p.value[0];
  } else if constexpr (op == Op::mul) {
    return x * p.value[0];
  } else if constexpr (op == Op::div) {
    return x / p.value[0];
  } else if constexpr (op == Op::square) {
    return x * x;
  } else if constexpr (op == Op::abs) {
    return abs(x);
  } else if constexpr (op == Op::neg) {
    return -x;
  } else if constexpr (op == Op::exp) {
    return Function::exp(x);
  } else if constexpr (op == Op::log) {
    return Function::log(x);
  } else if constexpr (op == Op::sqrt) {
    return Function::sqrt(x);
  } else if constexpr (op == Op::rsqrt) {
    return reciprocal_sqrt(x);
  } else if constexpr (op == Op::clamp) {
    const T low = p.value[0], high = p.value[1];
    const T raised = x < low || low != low ? low : x;
    return raised > high || high != high ? high : raised;
  } else if constexpr (op == Op::relu) {
    return x <= T(0) ? T(0) : x;
  } else if constexpr (op == Op::leaky_relu) {
    return x > T(0) ? x : x * p.value[0];
  } else if constexpr (op == Op::elu) {
    const T below = p.value[0] * Function::expm1_of_negative(x);
    return x < T(0) ? below : x;
  } else if constexpr (op == Op::silu) {
    return Function::silu(x);
  } else if constexpr (op == Op::gelu) {
    return Function::gelu(x);
  } else if constexpr (op == Op::gelu_tanh) {
    return Function::gelu_tanh(x);
  } else if constexpr (op == Op::sigmoid) {
    return Function::sigmoid(x);
  } else if constexpr (op == Op::tanh) {
    return Function::tanh(x);
  } else if constexpr (op == Op::softplus) {
    const T beta = p.value[0], scaled = x * beta, bent = Function::softplus(scaled, beta);
    return scaled > p.value[1] ? x : bent;
  } else if constexpr (op == Op::snake) {
    return Function::snake(x, p.value[0], p.value[1] + p.value[2]);
  } else if constexpr (op == Op::gate) {
    return x * Function::sigmoid(p.value[0]);
  } else {
    static_assert(op != op, "a row of stages.def has no branch here");
  }
}

// A stage as a function object (x, parameters) -> value, the argument of `body` below.
template <Op op, Precision precision = Precision::single>
struct Evaluate {
  template <class T>
  SLUICE_HOST_DEVICE T operator()(T x, const Parameters<T>& p) const {
    return evaluate<op, precision>(x, p);
  }
};

// Only float has two precisions; double's code would be duplicated.
template <Op op, class T, class Body>
SLUICE_HOST_DEVICE void in_half(Body&& body) {
  if constexpr (sizeof(T) == sizeof(float)) body(Evaluate<op, Precision::half>{});
}

// Each calls `body` with the function object of a code's stage (stage_list.h), in T. Three lists: the four stages that
// take a tensor most often, the stages with parameters, and all, so that a kernel can give the shortest list the wide
// path without repeating the longest.
template <class Body>
SLUICE_HOST_DEVICE bool with_arithmetic(Op op, Body&& body) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(name, ...) \
  case Op::name: body(Evaluate<Op::name>{}); return true;
#include "kernels/shared/stages/stages.def"
    default: return false;
  }
}

template <class T, class Body>
SLUICE_HOST_DEVICE bool with_parametric(Op op, Body&& body) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(...)
#define SLUICE_STAGE(name, ...) __VA_OPT__(case Op::name : body(Evaluate<Op::name>{}); return true;)
#define SLUICE_FUNCTION_STAGE(name, ...) \
  SLUICE_STAGE(name, __VA_ARGS__) __VA_OPT__(case Op::name##_in_half : in_half<Op::name, T>(body); return true;)
#include "kernels/shared/stages/stages.def"
    default: return with_arithmetic(op, body);
  }
}

// One switch over all of them: nested switches would compile to a chain of comparisons instead of a jump.
template <class T, class Body>
SLUICE_HOST_DEVICE bool with_stage(Op op, Body&& body) {
  switch (op) {
#define SLUICE_STAGE(name, ...) \
  case Op::name: body(Evaluate<Op::name>{}); return true;
#define SLUICE_FUNCTION_STAGE(name, ...) \
  SLUICE_STAGE(name)                     \
  case Op::name##_in_half: in_half<Op::name, T>(body); return true;
#include "kernels/shared/stages/stages.def"
    default: return false;
  }
}

}  // namespace sluice
