#include "ops/aten.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <array>

#include "ops/checks.h"

namespace sluice::aten {
namespace {

template <class... Arguments>
Tensor call(const char* name, const char* overload, const Arguments&... arguments) {
  std::array<StableIValue, sizeof...(Arguments)> stack{torch::stable::detail::from(arguments)...};
  check(torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION) == 0, name,
        " failed; torch printed why to stderr");
  return torch::stable::detail::to<Tensor>(stack[0]);
}

using Ints = std::vector<int64_t>;

}  // namespace

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t stride, int64_t padding,
                   int64_t dilation, int64_t groups) {
  return call("aten::convolution", "", input, weight, bias, Ints{stride}, Ints{padding}, Ints{dilation}, false, Ints{0}, groups);
}

Tensor convolution_2d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, int64_t vertical_padding,
                      int64_t horizontal_padding, int64_t groups) {
  const Ints padding{vertical_padding, horizontal_padding};
  return call("aten::convolution", "", input, weight, bias, Ints{1, 1}, padding, Ints{1, 1}, false, Ints{0, 0}, groups);
}

Tensor pad_2d(const Tensor& input, int64_t left, int64_t right, int64_t top, int64_t bottom) {
  return torch::stable::pad(input, Ints{left, right, top, bottom});
}

Tensor pad_last(const Tensor& input, int64_t before, int64_t after) { return torch::stable::pad(input, Ints{before, after}); }

Tensor concatenate_last(const Tensor& first, const Tensor& second) {
  return call("aten::cat", "", std::vector<Tensor>{first, second}, int64_t{-1});
}

Tensor to_dtype(const Tensor& input, DType dtype) { return torch::stable::to(input, scalar_type_of(dtype)); }

}  // namespace sluice::aten
