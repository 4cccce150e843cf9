// Shared by the causal ops: the checks of their arguments, and causal_conv1d as a Convolution.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/operators/causal_conv1d/sequences.h"
#include "ops/common/tensor_view.h"
#include "ops/convolution/convolution.h"

namespace sluice {

// The weight's shape (C, K), dtype and device, then the bias (C,), then the dilation. `x` has channels in dimension 1.
void check_taps(const char* op, const TensorView& weight, const std::optional<Tensor>& bias, int64_t dilation,
                const TensorView& x);

// `post` after the activation: "silu", "swish", "identity" or none.
std::string with_activation(const char* op, const std::optional<std::string>& activation, const std::string& post);

// int32 or int64 on x's device.
void check_index(const char* op, const char* name, const TensorView& index, const TensorView& x);

// One or two dimensions, or absent.
Indices indices_of(const std::optional<Tensor>& tensor);

// Arguments that all of causal_conv1d's entries have.
struct CausalArguments {
  const Tensor& x;
  const Tensor& weight;
  const std::optional<Tensor>& bias;
  const std::optional<std::string>& activation;
  int64_t dilation;
  const std::string& pre;
  const OptionalTensors& pre_operands;
  const std::string& post;
  const OptionalTensors& post_operands;
};

// Without a history, whose length is the convolution's padding.
Convolution causal_convolution(const char* op, const CausalArguments& arguments);

inline constexpr int64_t kNoSlot = std::numeric_limits<int64_t>::min();

// Named tensors that a kernel reads while it writes others.
using NamedTensors = std::vector<std::pair<const char*, Tensor>>;

// A cache of states, or of overlaps, and which of its slots sequences have.
struct CacheArguments {
  const char* name;
  const Tensor& cache;
  int64_t channels;
  const std::string& least;  // the rule for its columns, as "(K - 1) * dilation = 3"
  int64_t columns;           // columns at least
  const std::optional<Tensor>& indices;
  const std::optional<Tensor>& has_initial_state;
  int64_t pad_slot;
  const std::optional<int64_t>& null_slot;
};

// Fills in the states of `sequences`, whose count is known. Appends the tensors of slots and flags to `indices`.
void check_cache(const char* op, const CacheArguments& arguments, const TensorView& x, Sequences& sequences,
                 NamedTensors& indices);

// States of (sequences, channels, history), read or written.
void check_states(const char* op, const TensorView& states, const char* argument, const TensorView& x,
                  int64_t sequences, int64_t history);

}  // namespace sluice
