// An AOTInductor package with sluice's ops inside, from a LibTorch program: no Python anywhere.
//
//   package <model.pt2 of make_package.py> <path of sluice's _C.so> [<path of _C_cuda.so>]
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "package: give the package and sluice's libraries\n";
    return 2;
  }
  for (int i = 2; i < argc; ++i) {  // before the package, which asks for the ops by name
    if (dlopen(argv[i], RTLD_NOW) == nullptr) {
      std::cerr << dlerror() << "\n";
      return 1;
    }
  }
  try {
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    for (const int64_t length : {1000, 317}) {
      const std::vector<at::Tensor> results = model.run({at::randn({4, 64, length})});
      const double error = (results.at(0) - results.at(1)).abs().max().item<double>();
      std::cout << "a package with sluice::conv1d on " << results[0].sizes() << ": largest difference to ATen " << error
                << "\n";
      if (!(error < 1e-5)) return 1;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
