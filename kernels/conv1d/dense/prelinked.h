// The chains with which dense kernels come linked in the library: the activations that models have most.
#pragma once

#include <functional>

#include "kernels/linking/request.h"

namespace sluice {

struct PrelinkedChains {
  const char *pre, *post;
  bool in_channels;  // behind results whose channels lie side by side too, and not their positions alone
};

// Numbers are arguments of the kernel, so these stand for every slope; snake's is an alpha per channel in the input's
// dtype. Vocoders and codecs, whose activations LeakyReLU, SiLU and Snake are, keep positions side by side. Each takes
// the build 1.4 seconds for each of 14 kernels (docs/measurements/linking.md).
inline constexpr PrelinkedChains kDensePrelinked[] = {
    {"", "relu", true}, {"", "leaky_relu", false}, {"", "gelu", true}, {"", "silu", false}, {"", "snake($0,$0)", false},
};

// The request for each of them and each dense kernel, as a call makes it. What it points to is gone afterwards.
void for_each_prelinked(const std::function<void(const LinkRequest&)>& visit);

}  // namespace sluice
