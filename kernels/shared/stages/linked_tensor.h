// Tensors of a kernel whose dtypes are arguments in the interpreted form and constants in the linked one.
#pragma once

namespace sluice {

enum class LinkedTensor : int { output, weight, bias, history };
inline constexpr int kLinkedTensors = 4;

}  // namespace sluice
