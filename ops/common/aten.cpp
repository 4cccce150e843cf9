#include "ops/common/aten.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <exception>

#include "ops/common/checks.h"

namespace sluice::aten {
namespace {

class WithoutGraph {
 public:
  WithoutGraph() : was_enabled_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  ~WithoutGraph() { aoti_torch_grad_mode_set_enabled(was_enabled_); }
  WithoutGraph(const WithoutGraph&) = delete;
  WithoutGraph& operator=(const WithoutGraph&) = delete;

 private:
  bool was_enabled_;
};

// torch's own error text does not cross the stable ABI; the wrapper puts the op in front.
void check_torch(bool holds) { check(holds, "a torch op that it calls failed; torch wrote the reason to stderr"); }

template <class... Arguments>
Tensor call(const char* name, const char* overload, const Arguments&... arguments) {
  const WithoutGraph without_graph;
  std::array<StableIValue, sizeof...(Arguments)> stack{torch::stable::detail::from(arguments)...};
  check_torch(torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION) == 0);
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Calls a function of torch::stable, whose exceptions name torch's sources.
template <class Function>
Tensor call(Function function) {
  const WithoutGraph without_graph;
  try {
    return function();
  } catch (const std::exception&) {
    check_torch(false);
    throw;
  }
}

using Ints = std::vector<int64_t>;

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const ConvolutionNumbers& n) {
  return call("aten::convolution", "", input, weight, bias, Ints{n.stride}, Ints{n.padding}, Ints{n.dilation},
              n.is_transposed, Ints{n.output_padding}, n.groups);
}

Tensor convolution_of_row(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          const ConvolutionNumbers& n) {
  return call("aten::convolution", "", input, weight, bias, Ints{1, n.stride}, Ints{0, n.padding}, Ints{1, n.dilation},
              n.is_transposed, Ints{0, n.output_padding}, n.groups);
}

Tensor pad_last(const Tensor& input, int64_t before, int64_t after) {
  return call([&] { return torch::stable::pad(input, Ints{before, after}); });
}

Tensor concatenate_last(const Tensor& first, const Tensor& second) {
  return call("aten::cat", "", std::vector<Tensor>{first, second}, int64_t{-1});
}

Tensor to_dtype(const Tensor& input, DType dtype) {
  if (input.scalar_type() == scalar_type_of(dtype)) return input;
  return call([&] { return torch::stable::to(input, scalar_type_of(dtype)); });
}

std::optional<Tensor> to_dtype(const std::optional<Tensor>& input, DType dtype) {
  if (!input.has_value()) return std::nullopt;
  return to_dtype(*input, dtype);
}

Tensor narrow_last(const Tensor& input, int64_t first, int64_t count) {
  return call([&] {
    Tensor whole = input;
    return torch::stable::narrow(whole, input.dim() - 1, first, count);
  });
}

Tensor unsqueeze(const Tensor& input, int64_t dimension) { return call("aten::unsqueeze", "", input, dimension); }

Tensor squeeze(const Tensor& input, int64_t dimension) { return call("aten::squeeze", "dim", input, dimension); }

// A copy to itself moves nothing: torch returns at once, 0.3 us later.
void raise_version(const char* op, const Tensor& out, const char* argument) {
  const WithoutGraph without_graph;
  check(aoti_torch_copy_(out.get(), out.get(), 0) == 0, op, ": ", argument,
        " must not be an inference tensor outside torch.inference_mode(), got one");
}

}  // namespace sluice::aten
