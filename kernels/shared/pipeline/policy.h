// Policies by architecture. A method's policy.h has its kernels' compile-time constants, and a table of its plan's
// parameters, one row per architecture: a newly measured GPU adds a row, and changes nothing for the others.
#pragma once

#include <cstddef>

#include "kernels/shared/common/device_properties.h"
#include "kernels/shared/common/dtype.h"

namespace sluice {

// A number for half types and a number for wider types.
struct ByElement {
  int half, wider;
  constexpr int of(DType dtype) const { return size_of(dtype) == 2 ? half : wider; }
};

// The row of the device's architecture, or of the last architecture before it; the first row for older devices.
// Rows are in the order of their `compute_capability`.
template <class Policy, std::size_t Rows>
constexpr const Policy& policy_of(const DeviceProperties& device, const Policy (&rows)[Rows]) {
  const Policy* best = rows;
  for (const Policy& row : rows) {
    if (row.compute_capability <= device.compute_capability) best = &row;
  }
  return *best;
}

}  // namespace sluice
