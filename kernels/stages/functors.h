// What each stage computes: one definition for the CPU, the GPU and the run-time linker.
//
// A stage maps a value and up to three parameters to a value, in float or double. Every file that
// includes this one is compiled without contraction (-fmad=false, -ffp-contract=off), so a product
// and a sum round twice everywhere and all forms of a chain agree; fused products are written out.
#pragma once

#ifndef __CUDACC_RTC__  // there the overloads are global, without a header
#include <cmath>
#endif

#include "kernels/common/qualifiers.h"
#include "kernels/stages/stage_list.h"

namespace sluice {

// 1 / (1 + e^-x). The device form is five instructions; an accurate exponential and an IEEE quotient are
// twenty, and a chain with SiLU in half types is then bound by arithmetic instead of memory. Its error
// grows with |x| for negative x: 2 + |x| units in the last place of a result that shrinks as e^x.
SLUICE_HOST_DEVICE float logistic(float x) {
#ifdef __CUDA_ARCH__
  float power, quotient;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(1.0f + power));
  return quotient;
#else
  return 1.0f / (1.0f + std::exp(-x));
#endif
}
SLUICE_HOST_DEVICE double logistic(double x) { return 1.0 / (1.0 + ::exp(-x)); }

SLUICE_HOST_DEVICE float reciprocal_sqrt(float value) {
#ifdef __CUDA_ARCH__
  return rsqrtf(value);
#else
  return 1.0f / std::sqrt(value);
#endif
}
SLUICE_HOST_DEVICE double reciprocal_sqrt(double value) {
#ifdef __CUDA_ARCH__
  return ::rsqrt(value);
#else
  return 1.0 / std::sqrt(value);
#endif
}

// Parameters of the stage at hand: numbers, or the element's own values of tensor operands.
template <class T>
struct Parameters {
  T value[kMaxParameters];
};

// x <= 0, x < low and the like are written so that a NaN passes through, as in torch.
template <Op op, class T>
SLUICE_HOST_DEVICE T evaluate(T x, const Parameters<T>& p) {
#ifndef __CUDACC_RTC__
  using std::abs, std::erf, std::exp, std::expm1, std::log, std::log1p, std::sin, std::sqrt, std::tanh;
#endif
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
    return exp(x);
  } else if constexpr (op == Op::log) {
    return log(x);
  } else if constexpr (op == Op::sqrt) {
    return sqrt(x);
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
    return x > T(0) ? x : p.value[0] * expm1(x);
  } else if constexpr (op == Op::silu) {
    return x * logistic(x);
  } else if constexpr (op == Op::gelu) {
    return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
  } else if constexpr (op == Op::gelu_tanh) {
    const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + tanh(inner));
  } else if constexpr (op == Op::sigmoid) {
    return logistic(x);
  } else if constexpr (op == Op::tanh) {
    return tanh(x);
  } else if constexpr (op == Op::softplus) {
    const T beta = p.value[0], scaled = x * beta;
    return scaled > p.value[1] ? x : log1p(exp(scaled)) / beta;
  } else if constexpr (op == Op::snake) {
    const T sine = sin(p.value[0] * x);
    return x + sine * sine / (p.value[1] + p.value[2]);
  } else {
    static_assert(op != op, "a row of stages.def has no branch here");
  }
}

// A stage as a function object (x, parameters) -> value, which the functions below call `body` with.
template <Op op>
struct Evaluate {
  template <class T>
  SLUICE_HOST_DEVICE T operator()(T x, const Parameters<T>& p) const {
    return evaluate<op>(x, p);
  }
};

// The four that take a tensor most often, those that have parameters, and everything: lists of their own, so that a
// kernel can give the shortest one the wide path without repeating the longest.
template <class Body>
SLUICE_HOST_DEVICE bool with_arithmetic(Op op, Body&& body) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(name, ...) \
  case Op::name: body(Evaluate<Op::name>{}); return true;
#include "kernels/stages/stages.def"
    default: return false;
  }
}

template <class Body>
SLUICE_HOST_DEVICE bool with_parametric(Op op, Body&& body) {
  switch (op) {
#define SLUICE_ARITHMETIC_STAGE(...)
#define SLUICE_STAGE(name, ...) __VA_OPT__(case Op::name : body(Evaluate<Op::name>{}); return true;)
#include "kernels/stages/stages.def"
    default: return with_arithmetic(op, body);
  }
}

// One switch over all of them: nested ones would compile to a chain of comparisons instead of a jump.
template <class Body>
SLUICE_HOST_DEVICE bool with_stage(Op op, Body&& body) {
  switch (op) {
#define SLUICE_STAGE(name, ...) \
  case Op::name: body(Evaluate<Op::name>{}); return true;
#include "kernels/stages/stages.def"
    default: return false;
  }
}

}  // namespace sluice
