// The subsequences of a call, found on the host if its numbers are there: each is a convolution with a history.
#pragma once

#include <vector>

#include "kernels/operators/causal_conv1d/sequences.h"

namespace sluice {

// Covers every position of every row.
std::vector<Subsequence> subsequences_on_cpu(const SequencesParams& params);

// The last subsequence of each sequence that has a slot; empty for a sequence without positions, also for a row whose
// ids are all negative.
std::vector<Subsequence> last_subsequences_on_cpu(const SequencesParams& params);

// The convolution of one subsequence, a row and its history. Made once, then moved to each subsequence.
class SubsequenceConvolution {
 public:
  explicit SubsequenceConvolution(const SequencesParams& params) : params_(params), convolution_(params.convolution) {
    convolution_.batch = 1;
  }
  const Conv1dParams& at(const Subsequence& subsequence);

 private:
  const SequencesParams& params_;
  Conv1dParams convolution_;
};

}  // namespace sluice
