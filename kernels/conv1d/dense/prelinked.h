// The chains with which dense kernels come linked in the library: the activations that models have most.
#pragma once

#include <functional>

#include "kernels/linking/request.h"

namespace sluice {

struct PrelinkedChains {
  const char *pre, *post;
};

// Numbers are arguments of the kernel, so these stand for every slope; snake's is an alpha per channel in the input's
// dtype. Each of them takes the build 0.6 to 2 seconds for each of 28 kernels (docs/measurements/linking.md).
inline constexpr PrelinkedChains kDensePrelinked[] = {
    {"", "relu"}, {"", "leaky_relu"}, {"", "gelu"}, {"", "silu"}, {"", "snake($0,$0)"},
};

// The request for each of them and each dense kernel, as a call makes it. What it points to is gone afterwards.
void for_each_prelinked(const std::function<void(const LinkRequest&)>& visit);

}  // namespace sluice
