// The stages that a chain is made of.
#pragma once

namespace sluice {

// `scale` and `shift` are `mul` and `add` with a number: they have names, but no code of their own.
enum class Op : unsigned char {
  add,
  sub,
  mul,
  div,  // these four first: StageKind::arithmetic
  square,
  abs,
  neg,
  exp,
  log,
  sqrt,
  rsqrt,
  clamp,
  relu,
  leaky_relu,
  elu,
  silu,
  gelu,
  gelu_tanh,
  sigmoid,
  tanh,
  softplus,
  snake,
  cast,
  cpp,   // a user's own, linked only
  more,  // further parameters of the `cpp` before it
  emit,  // stores the values into a tensor and begins again with the chain's input: several results of one pass, linked only
};

inline constexpr int kMaxParameters = 3;

}  // namespace sluice
