// Which of the library's code runs on a GPU, and so what a kernel may do there.
//
//   built for        8.0   8.6   8.9   9.0   10.0   12.0
//   80, 90a, PTX 80   80    80    80    90a    80     80     machine code of the GPU's generation, else the PTX
#pragma once

#include <string_view>

namespace sluice {

// Names of architectures are nvcc's: 80, 90a. Empty where there is no code that runs on the device.
std::string_view code_architecture(int compute_capability);

// The same of a library built for `architectures` (separated by commas), with PTX for `ptx` (empty: none).
std::string_view code_architecture(int compute_capability, std::string_view architectures, std::string_view ptx);

// The compute capability, times ten, that the code for the device was compiled for; 0 where there is none.
int code_capability(int compute_capability);

}  // namespace sluice
