// The action of a call: compute, only link the chains, or plan.
#pragma once

#include "kernels/shared/common/device_properties.h"

namespace sluice {

enum class Action { compute, prepare, plan };

struct CallMode {
  Action action = Action::compute;
  // For a plan: the device, which need not be present, and whether chains are linked there.
  DeviceProperties device = {};
  bool linked = false;

  bool computes() const { return action == Action::compute; }
  bool plans() const { return action == Action::plan; }
};

// Why nothing was linked if there was nothing to link.
inline constexpr const char* kNoChain = "there is no chain";
inline constexpr const char* kOnCpu = "the CPU needs no linking";
inline constexpr const char* kEmptyResult = "the result is empty";

}  // namespace sluice
