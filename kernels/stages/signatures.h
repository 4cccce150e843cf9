// The stages' names, parameters and torch's defaults: the one table that the parser and the Python side
// (python/sluice/stages.py, checked by a test) agree on.
#pragma once

#include <limits>

#include "kernels/stages/stage_list.h"

namespace sluice {

// A parameter without a default has to be given.
inline constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct StageSignature {
  const char* name;
  Op op;
  int parameters;
  double defaults[kMaxParameters];
};

// `snake` without beta, which stands for its alpha, is written by the Python side as snake(a,a,eps).
// `cast` is spelled cast(float16) and parsed on its own.
inline constexpr StageSignature kStageList[] = {
    {"scale", Op::mul, 1, {kRequired}},
    {"shift", Op::add, 1, {kRequired}},
    {"add", Op::add, 2, {kRequired, 1.0}},
    {"sub", Op::sub, 2, {kRequired, 1.0}},
    {"mul", Op::mul, 1, {kRequired}},
    {"div", Op::div, 1, {kRequired}},
    {"square", Op::square, 0, {}},
    {"abs", Op::abs, 0, {}},
    {"neg", Op::neg, 0, {}},
    {"exp", Op::exp, 0, {}},
    {"log", Op::log, 0, {}},
    {"sqrt", Op::sqrt, 0, {}},
    {"rsqrt", Op::rsqrt, 0, {}},
    {"clamp", Op::clamp, 2, {-kInfinity, kInfinity}},
    {"relu", Op::relu, 0, {}},
    {"leaky_relu", Op::leaky_relu, 1, {0.01}},
    {"elu", Op::elu, 1, {1.0}},
    {"silu", Op::silu, 0, {}},
    {"gelu", Op::gelu, 0, {}},
    {"gelu_tanh", Op::gelu_tanh, 0, {}},
    {"sigmoid", Op::sigmoid, 0, {}},
    {"tanh", Op::tanh, 0, {}},
    {"softplus", Op::softplus, 2, {1.0, 20.0}},
    {"snake", Op::snake, 3, {kRequired, kRequired, 1e-9}},
};

}  // namespace sluice
