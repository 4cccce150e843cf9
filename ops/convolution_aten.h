// The part of a convolution that torch's own kernels take, and the passes of its chains around them.
#pragma once

#include "ops/convolution.h"

namespace sluice {

// The input behind a pass of `pre`, rounded to the input's dtype as it would be inside of a kernel.
Tensor input_behind_pre(const Convolution& convolution);

// aten's convolution after the pass of `pre`; `post` is still to come.
Tensor convolve_with_aten(const Convolution& convolution);

// The passes in front of aten's convolution and behind it, into `result`: linked, or why they are not.
std::string prepare_passes(const Convolution& convolution, const TensorView& result, const Question& question);

}  // namespace sluice
