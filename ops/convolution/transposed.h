// Transposed convolutions as conv1d's kernels run them: a launch for each polyphase component, or range of components
// (kernels/operators/conv_transpose1d).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "ops/convolution/convolution.h"

namespace sluice {

// Why aten computes the whole convolution, or null. `on_gpu`: launches cost time.
const char* transposed_reason_for_aten(const Convolution& convolution, const Conv1dParams& whole, bool on_gpu);

// The launches of a transposed convolution, which must outlive this.
class Components {
 public:
  Components(const Convolution& convolution, const Conv1dParams& whole);

  int64_t count() const { return count_; }
  Conv1dParams params_of(int64_t launch) const;
  std::string describe() const;  // empty for one launch

 private:
  const void* packed_of(int64_t launch) const;

  const Conv1dParams& whole_;
  const bool in_ranges_;      // channels are summed: a dense kernel interleaves the components of a range
  const void* const packed_;  // the packed weight in the launches' form; else null, and each launch packs
  ComponentRanges ranges_;    // only `in_ranges_`
  int64_t count_;
};

}  // namespace sluice
