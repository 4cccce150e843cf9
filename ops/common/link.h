// The form in which an op runs a kernel: with its chains linked in, or with the interpreter.
#pragma once

#include "ops/common/call_mode.h"

#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/linking/linker.h"
#include "ops/common/launch.h"

namespace sluice {

struct Form {
  const void* kernel = nullptr;  // of the linked form; null: interpreted
  const char* reason = "";       // why it is interpreted,
  std::string error = {};        // and the failure, if there was one

  std::string why() const { return error.empty() ? reason : error; }
};

// Raises if a C++ stage cannot be linked; warns, once per process, if a link failed unexpectedly.
Form choose_form(const char* op, const LinkRequest& request, const DeviceScope& device, long long elements,
                 Action action);

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
