#include "ops/causal.h"

#include "ops/common/checks.h"

namespace sluice {

void check_taps(const char* op, const TensorView& weight, const std::optional<Tensor>& bias, const TensorView& x) {
  const int64_t channels = x.sizes[1];
  check(weight.rank == 2 && weight.sizes[0] == channels && weight.sizes[1] > 0, op,
        ": weight must have shape (C, K) with C = ", channels, ", got ", weight.shape());
  check_device(op, "weight", weight, x);
  if (!bias.has_value()) return;
  const TensorView offset(*bias);
  check_floating(op, "bias", offset);
  check_device(op, "bias", offset, x);
  check(offset.has_sizes({channels}), op, ": bias must have shape (C,) with C = ", channels, ", got ", offset.shape());
}

std::string with_activation(const char* op, const std::optional<std::string>& activation, const std::string& post) {
  if (!activation.has_value() || *activation == "identity") return post;
  check(*activation == "silu" || *activation == "swish", op,
        ": activation must be None, identity, silu or swish, got '", *activation, "'");
  return post.empty() ? "silu" : "silu|" + post;
}

}  // namespace sluice
