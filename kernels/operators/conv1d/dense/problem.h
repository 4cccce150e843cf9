// What the dense method's plan reads of a problem.
#pragma once

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

inline constexpr int kStepBytes = 32;                 // bytes of input channels of a product
inline constexpr long long kMostStageRows = 1 << 13;  // rows of 32 bytes and more

inline long long inputs_of_group(const Conv1dProblem& problem) { return problem.input_channels / problem.groups; }
inline long long outputs_of_group(const Conv1dProblem& problem) { return problem.channels / problem.groups; }
inline int element_bytes(const Conv1dProblem& problem) { return static_cast<int>(size_of(problem.dtype)); }
inline int parts_of(const Conv1dProblem& problem) { return parts_of(problem.dtype, problem.allows_tf32); }
inline int word_of(const Conv1dProblem& problem) { return word_elements(problem.dtype); }
constexpr bool transposes(DenseFetch fetch) { return fetch == DenseFetch::positions || fetch == DenseFetch::shifted; }

}  // namespace sluice
