// Which form of a kernel an op runs: with its chains linked in, or with the interpreter.
#pragma once

#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/linking/linker.h"
#include "ops/common/launch.h"
#endif

namespace sluice {

// Whether a call computes, or only links what it would run.
enum class Run { now, prepare };

// Why nothing was linked, where there was nothing to link.
inline constexpr const char* kNoChain = "there is no chain";
inline constexpr const char* kOnCpu = "the CPU needs no linking";
inline constexpr const char* kEmptyResult = "the result is empty";

#ifdef SLUICE_CUDA_LIBRARY

struct Form {
  const void* kernel = nullptr;  // of the linked form; null: interpreted
  std::string reason;            // why it is interpreted
};

// Raises where a stage in C++ cannot be linked; warns, once a process, where a link failed that should not have.
Form choose_form(const char* op, const LinkRequest& request, const DeviceScope& device, long long elements, Run run);

#endif  // SLUICE_CUDA_LIBRARY

}  // namespace sluice
