// The form in which an op runs a kernel: with its chains linked in, or with the interpreter.
#pragma once

#include <string>

#include "kernels/linking/request.h"
#include "ops/common/call_mode.h"
#include "ops/common/device.h"

namespace sluice {

struct Form {
  const void* kernel = nullptr;  // the linked form's; null: interpreted
  const char* reason = "";       // why it is interpreted,
  std::string error = {};        // and the failure, if there was one

  std::string why() const { return error.empty() ? reason : error; }
};

// The form of a kernel with at least one stage. Raises if a C++ stage cannot be linked; warns, once per process, if a
// link failed unexpectedly.
Form choose_form(const char* op, const LinkRequest& request, const DeviceScope& device, long long elements,
                 Action action);

}  // namespace sluice
