#include "ops/causal.h"

#include "ops/common/allocate.h"
#include "ops/common/checks.h"

namespace sluice {
void check_taps(const char* op, const TensorView& weight, const std::optional<Tensor>& bias, int64_t dilation,
                const TensorView& x) {
  const int64_t channels = x.sizes[1];
  check_floating(op, "weight", weight);
  check(weight.rank == 2 && weight.sizes[0] == channels && weight.sizes[1] > 0, op,
        ": weight must have shape (C, K) with C = ", channels, ", got ", weight.shape());
  check_device(op, "weight", weight, x);
  if (bias.has_value()) {
    const TensorView offset(*bias);
    check_floating(op, "bias", offset);
    check_device(op, "bias", offset, x);
    check(offset.has_sizes({channels}), op, ": bias must have shape (C,) with C = ", channels, ", got ",
          offset.shape());
  }
  check(dilation >= 1, op, ": dilation must be at least 1, got ", dilation);
  check(dilation < int64_t{1} << 31 && weight.sizes[1] < int64_t{1} << 31, op,
        ": dilation and taps must be less than 2^31, got ", dilation, " and ", weight.sizes[1]);
}

std::string with_activation(const char* op, const std::optional<std::string>& activation, const std::string& post) {
  if (!activation.has_value() || *activation == "identity") return post;
  check(*activation == "silu" || *activation == "swish", op,
        ": activation must be None, identity, silu or swish, got '", *activation, "'");
  return post.empty() ? "silu" : "silu|" + post;
}

void check_index(const char* op, const char* name, const TensorView& index, const TensorView& x) {
  check(index.scalar_type == ScalarType::Int || index.scalar_type == ScalarType::Long, op, ": ", name,
        " must have dtype int32 or int64, got ", name_of(index.scalar_type));
  check_device(op, name, index, x);
}

Indices indices_of(const std::optional<Tensor>& tensor) {
  if (!tensor.has_value()) return {};
  const TensorView view(*tensor);
  // An empty tensor's data may be null, which means absent; nothing is read from this.
  constexpr static int64_t kNothing = 0;
  Indices indices{view.data != nullptr ? view.data : &kNothing, view.scalar_type == ScalarType::Long, {}};
  std::copy_n(view.strides, std::min<int64_t>(view.rank, 2), indices.strides);
  return indices;
}

Convolution causal_convolution(const char* op, const CausalArguments& a) {
  const TensorView x(a.x), weight(a.weight);
  check_floating(op, "x", x);
  check_memory(op, "weight", weight);
  check(x.rank == 3, op, ": x must have shape (batch, channels, length), got ", x.shape());
  check_taps(op, weight, a.bias, a.dilation, x);
  const std::vector<int64_t> sizes = sizes_of(x);
  Chain before(op, "pre", a.pre, a.pre_operands, x, sizes);
  Chain after(op, "post", with_activation(op, a.activation, a.post), a.post_operands, x, sizes);
  before.program.set_precision(x.dtype, x.dtype);
  after.program.set_precision(x.dtype, x.dtype);
  return {.op = op,
          .input = a.x,
          .weight = a.weight,
          .bias = a.bias,
          .padding = (weight.sizes[1] - 1) * a.dilation,
          .dilation = a.dilation,
          .groups = x.sizes[1],
          .pre = std::move(before),
          .post = std::move(after),
          .dtype = x.dtype,
          .sizes = sizes,
          .strides = layout_strides(x, sizes, /*spatial=*/1)};
}

void check_cache(const char* op, const CacheArguments& a, const TensorView& x, Sequences& s, NamedTensors& indices) {
  const TensorView cache(a.cache);
  check_floating(op, a.name, cache);
  check_device(op, a.name, cache, x);
  check(cache.rank == 3 && cache.sizes[1] == a.channels, op, ": ", a.name, " must have shape (slots, ", a.channels,
        ", columns), got ", cache.shape());
  check(cache.sizes[2] >= a.columns, op, ": ", a.name, " must have at least ", a.least, " columns, got ",
        cache.sizes[2]);
  if (a.indices.has_value()) {
    const TensorView slots(*a.indices);
    check_index(op, "cache_indices", slots, x);
    check(slots.rank == 1 && slots.sizes[0] >= s.count, op, ": cache_indices must have shape (", s.count,
          " or more,), got ", slots.shape());
    indices.emplace_back("cache_indices", *a.indices);
  } else {
    check(cache.sizes[0] == s.count, op, ": ", a.name, " must have ", s.count,
          " slots, one per sequence, when cache_indices is None, got ", cache.sizes[0]);
  }
  if (a.has_initial_state.has_value()) {
    const TensorView flags(*a.has_initial_state);
    check(flags.scalar_type == ScalarType::Bool, op, ": has_initial_state must have dtype bool, got ",
          name_of(flags.scalar_type));
    check_device(op, "has_initial_state", flags, x);
    check(flags.has_sizes({s.count}), op, ": has_initial_state must have shape (", s.count, ",), got ", flags.shape());
    indices.emplace_back("has_initial_state", *a.has_initial_state);
    s.continues = {static_cast<const bool*>(flags.data), flags.strides[0]};
  }
  check_written_once(op, a.name, cache);
  s.slots = indices_of(a.indices);
  s.slot_count = cache.sizes[0];
  s.pad_slot = a.pad_slot;
  s.null_slot = a.null_slot.value_or(kNoSlot);
  s.columns = cache.sizes[2];
  if (cache.elements() > 0) s.before = operand_of<3>(cache);
}

void check_states(const char* op, const TensorView& states, const char* argument, const TensorView& x,
                  int64_t sequences, int64_t history) {
  check_floating(op, argument, states);
  check_device(op, argument, states, x);
  const std::vector<int64_t> sizes = {sequences, x.sizes[1], history};
  check(states.has_sizes(sizes), op, ": ", argument,
        " must have shape (sequences, channels, (K - 1) * dilation) = ", ShapeText{sizes}, ", got ", states.shape());
}

}  // namespace sluice
