// The library's code that runs on a GPU, which bounds the kernels' features there.
//
//   built for                          8.0   8.6   8.9   9.0   10.0   12.0
//   80, 90a, PTX 80                     80    80    80    90a    80     80     machine code of its generation, or PTX
//   80, 86, 90a, 100, 120, PTX 80       80    86    86    90a   100    120
//
// Linked kernels are made of the LTO-IR of SLUICE_LTO_ARCHS (CMakeLists.txt), for 12.0 that of 8.0.
#pragma once

#include <string_view>

namespace sluice {

// Names of architectures are nvcc's: 80, 90a. Empty if no code runs on the device.
std::string_view code_architecture(int compute_capability);

// The same for a library built for `architectures` (comma-separated), with PTX for `ptx` (empty: none).
std::string_view code_architecture(int compute_capability, std::string_view architectures, std::string_view ptx);

// Whether that code is PTX, which the driver compiles.
bool runs_ptx(int compute_capability);

// The compute capability, times ten, that all of the device's code has, linked kernels' too; 0 if there is none.
int code_capability(int compute_capability);

// Whether that code may start beside the previous kernel (launch.h); await_previous does nothing in earlier code.
inline bool can_start_beside(int compute_capability) { return code_capability(compute_capability) >= 90; }

}  // namespace sluice
