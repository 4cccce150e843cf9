// What the two causal ops check alike: the weight, the bias, the activation.
#pragma once

#include <optional>
#include <string>

#include "ops/common/tensor_view.h"

namespace sluice {

// The weight's shape (C, K) and device, then the bias (C,). `x` has channels in dimension 1; dtypes of both are
// checked.
void check_taps(const char* op, const TensorView& weight, const std::optional<Tensor>& bias, const TensorView& x);

// `post` behind the activation: "silu", "swish", "identity" or none.
std::string with_activation(const char* op, const std::optional<std::string>& activation, const std::string& post);

}  // namespace sluice
