// `_stream_<op>`: the op for each of many chunks, whose inputs are views of a device's slots. It is called once, for
// slot 0; kernels/transfer/chunk_loop.h copies the chunks.
//
//   arguments of the op, with slot 0's views as its inputs
//   out       the result of slot 0
//   inputs    the views of all slots, the views of slot 0 first
//   outputs   the results of all slots: views of them, or the same scratch memory for each
//   engine    of ops/transfer.cpp
//   loop      the loop, as numbers
//
// Returns how far the loop came, or an empty text if an input is not an argument as it is, because Python converted it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/common/chain.h"
#include "ops/common/tensor_view.h"

namespace sluice {

// In ops/transfer.cpp.
std::string run_chunk_loop(int64_t engine, const std::vector<int64_t>& loop,
                           const std::function<void(int slot)>& compute);

// Turns the arguments of slot 0 into another slot's.
class SlotArguments {
 public:
  SlotArguments(const std::vector<Tensor>& inputs, std::size_t each) : inputs_(inputs), each_(each), found_(each) {}

  void choose(std::size_t slot) { slot_ = slot; }
  bool has_found_all() const {
    for (bool found : found_) {
      if (!found) return false;
    }
    return true;
  }

  template <class T>
  T of(const T& value) {
    return value;
  }
  Tensor of(const Tensor& value) {
    for (std::size_t i = 0; i < each_; ++i) {
      if (!same_view(value, inputs_[i])) continue;
      found_[i] = true;
      return inputs_[slot_ * each_ + i];
    }
    return value;
  }
  std::optional<Tensor> of(const std::optional<Tensor>& value) {
    return value.has_value() ? std::optional<Tensor>(of(*value)) : std::nullopt;
  }
  OptionalTensors of(const OptionalTensors& values) {
    if (!values.has_value()) return std::nullopt;
    std::vector<Tensor> changed;
    for (const Tensor& value : *values) changed.push_back(of(value));
    return changed;
  }

 private:
  static bool same_view(const Tensor& a, const Tensor& b) {
    const TensorView x(a), y(b);
    return x.data == y.data && x.scalar_type == y.scalar_type && x.walks_like(y);
  }

  const std::vector<Tensor>& inputs_;
  const std::size_t each_;
  std::vector<bool> found_;
  std::size_t slot_ = 0;
};

template <auto kCheck, auto kOut>
struct StreamedOp;

template <class Call, class... Arguments, Call (*kCheck)(Arguments...), void (*kOut)(const Call&, const Tensor&)>
struct StreamedOp<kCheck, kOut> {
  static std::string run(Arguments... arguments, const Tensor&, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& outputs, int64_t engine, const std::vector<int64_t>& loop) {
    const std::size_t depth = outputs.size();
    SlotArguments slots(inputs, inputs.size() / depth);
    std::vector<std::tuple<std::decay_t<Arguments>...>> held;  // calls may refer to their arguments
    std::vector<Call> calls;
    held.reserve(depth);
    calls.reserve(depth);
    for (std::size_t slot = 0; slot < depth; ++slot) {
      slots.choose(slot);
      held.emplace_back(slots.of(arguments)...);
      if (!slots.has_found_all()) return {};
      calls.push_back(std::apply(kCheck, held.back()));
    }
    return run_chunk_loop(engine, loop, [&](int slot) {
      kOut(calls[static_cast<std::size_t>(slot)], outputs[static_cast<std::size_t>(slot)]);
    });
  }
};

template <auto kCheck, auto kOut>
inline constexpr auto streamed_op = &StreamedOp<kCheck, kOut>::run;

// The arguments that follow an op's in the schema of `_stream_<op>`.
inline constexpr const char* kStreamedArguments =
    ", Tensor(a!) out, Tensor[] inputs, Tensor[] outputs, int engine, int[] loop) -> str";

}  // namespace sluice
