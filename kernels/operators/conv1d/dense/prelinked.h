// The chains that dense kernels are linked with at build time: the most common activations of models.
#pragma once

#include <functional>

#include "kernels/linking/request.h"

namespace sluice {

struct PrelinkedChains {
  const char *pre, *post;
  bool in_channels;  // results whose channels are contiguous have it too, not only results by positions
};

// Numbers are kernel arguments, so one entry serves every slope; snake's is an alpha per channel in the input's dtype.
// Vocoders and codecs, which use LeakyReLU, SiLU and Snake, are channels-first. Each chain adds 1.4 seconds for each of
// 14 kernels to the build (docs/measurements/linking.md).
inline constexpr PrelinkedChains kDensePrelinked[] = {
    {"", "relu", true}, {"", "leaky_relu", false}, {"", "gelu", true}, {"", "silu", false}, {"", "snake($0,$0)", false},
};

// Visits the request of each of them with each dense kernel, as a call makes it. It points to temporaries.
void for_each_prelinked(const std::function<void(const LinkRequest&)>& visit);

}  // namespace sluice
