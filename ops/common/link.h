// Which form of a kernel an op runs: with its chains linked in, or with the interpreter.
#pragma once

#include "ops/common/question.h"

#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/linking/linker.h"
#include "ops/common/launch.h"

namespace sluice {

struct Form {
  const void* kernel = nullptr;  // of the linked form; null: interpreted
  const char* reason = "";       // why it is interpreted,
  std::string error = {};        // and what failed, where something did

  std::string why() const { return error.empty() ? reason : error; }
};

// Raises where a stage in C++ cannot be linked; warns, once a process, where a link failed that should not have.
Form choose_form(const char* op, const LinkRequest& request, const DeviceScope& device, long long elements, Run run);

}  // namespace sluice

#endif  // SLUICE_CUDA_LIBRARY
