// What is asked of an op with its arguments: to compute, to link what would compute, or to explain it.
#pragma once

#include "kernels/common/device_properties.h"

namespace sluice {

enum class Run { compute, prepare, explain };

struct Question {
  Run run = Run::compute;
  // Of a plan: for which device, which need not be there, and whether chains are linked there.
  DeviceProperties device = {};
  bool linked = false;

  bool computes() const { return run == Run::compute; }
  bool explains() const { return run == Run::explain; }
};

// Why nothing was linked, where there was nothing to link.
inline constexpr const char* kNoChain = "there is no chain";
inline constexpr const char* kOnCpu = "the CPU needs no linking";
inline constexpr const char* kEmptyResult = "the result is empty";

}  // namespace sluice
