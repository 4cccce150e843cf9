// Sizes of the portable dense kernel.
#pragma once

#include "kernels/shared/common/qualifiers.h"

namespace sluice {

inline constexpr int kPortableConsumers = 256;  // threads that multiply: two warpgroups
inline constexpr int kPortableProducers = 128;  // threads that copy; 12 warps of 168 registers fill an SM
inline constexpr int kPortableThreads = kPortableConsumers + kPortableProducers;

}  // namespace sluice
