// The runs of a call, found on the host where its numbers are there: each is a convolution with a history.
#pragma once

#include <vector>

#include "kernels/causal_conv1d/sequences.h"

namespace sluice {

// Every position of every row is in one of them.
std::vector<SequenceRun> runs_on_cpu(const SequencesParams& params);

// The last run of each sequence that has a slot, without positions where the sequence has none.
std::vector<SequenceRun> last_runs_on_cpu(const SequencesParams& params);

// The convolution of one run, a row and its history. Made once, and then moved from run to run.
class RunConvolution {
 public:
  explicit RunConvolution(const SequencesParams& params) : params_(params), convolution_(params.convolution) {
    convolution_.batch = 1;
  }
  const Conv1dParams& at(const SequenceRun& run);

 private:
  const SequencesParams& params_;
  Conv1dParams convolution_;
};

}  // namespace sluice
