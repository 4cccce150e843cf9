// sluice from a LibTorch program: no Python anywhere.
//
//   filter <path of sluice's _C.so> [<path of _C_cuda.so>]
//
// Loading the libraries registers the ops; the dispatcher finds them by name.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <iostream>

namespace {

using Operands = std::optional<std::vector<at::Tensor>>;
using Transform = at::Tensor(const at::Tensor&, c10::string_view, Operands, std::optional<at::ScalarType>,
                             c10::string_view, std::optional<int64_t>);

at::Tensor transform(const at::Tensor& input, c10::string_view chain, std::vector<at::Tensor> operands) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("sluice::transform", "").typed<Transform>();
  return op.call(input, chain, std::move(operands), std::nullopt, "auto", std::nullopt);
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW) == nullptr) {
      std::cerr << dlerror() << "\n";
      return 1;
    }
  }
  const at::Tensor x = at::randn({8, 64, 1000}), gain = at::rand({64, 1});
  const at::Tensor y = transform(x, "scale(1.5)|mul($0)|silu", {gain});
  const double error = (y - at::silu(1.5 * x * gain)).abs().max().item<double>();
  std::cout << "sluice::transform on " << y.sizes() << ": largest difference to ATen " << error << "\n";
  return error < 1e-5 ? 0 : 1;
}
