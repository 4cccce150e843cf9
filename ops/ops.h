// The namespace torch.ops.sluice: what each file of ops/ registers.
#pragma once

#include "ops/common/registration.h"

namespace sluice {

extern const Registration kCausalConv1d, kCausalConv1dChunk, kCausalConv1dSequences, kCausalConv1dUpdate,
    kCausalConvTranspose1dChunk, kConv1d, kConvTranspose1d, kFilter2d, kPack, kQueries, kTransform, kTransformMany;

inline constexpr const Registration* kOps[] = {
    &kCausalConv1d,
    &kCausalConv1dChunk,
    &kCausalConv1dSequences,
    &kCausalConv1dUpdate,
    &kCausalConvTranspose1dChunk,
    &kConv1d,
    &kConvTranspose1d,
    &kFilter2d,
    &kPack,
    &kQueries,
    &kTransform,
    &kTransformMany,
};

}  // namespace sluice
