// Layout and size of the Fourier method's tables in the workspace.
#pragma once

#include "kernels/operators/conv1d/fourier/passes.h"
#include "kernels/shared/common/dtype.h"

namespace sluice {

inline constexpr int kComplexesOfWord = kWordBytes / static_cast<int>(sizeof(Complex));
inline constexpr int kWordsOfRoots = kKeptRoots / kComplexesOfWord;  // words of one thread
inline constexpr int kRootWords = kWordsOfRoots * (kFourierThreads + kFourierRadix);
inline constexpr int kSpectrumWords = kFourierPoints / kComplexesOfWord;

// Word `i` of a thread's roots, or of its lane's; consecutive threads read consecutive words.
SLUICE_HOST_DEVICE int root_word(bool is_of_row, int thread, int i) {
  return is_of_row ? kWordsOfRoots * kFourierThreads + i * kFourierRadix + lane_of_row(thread)
                   : i * kFourierThreads + thread;
}
// The word of a spectrum with points 2 i and 2 i + 1 of a thread.
SLUICE_HOST_DEVICE int spectrum_word(int thread, int i) { return i * kFourierThreads + thread; }

constexpr long long fourier_workspace(long long channels, long long partitions) {
  const long long exponents = (channels * static_cast<long long>(sizeof(int)) + kWordBytes - 1) / kWordBytes;
  return (kRootWords + channels * partitions * kSpectrumWords + exponents) * kWordBytes;
}

}  // namespace sluice
