// A convolution's launches: planned, linked, run, or explained.
#pragma once

#include <functional>

#include "ops/convolution/convolution.h"
#include "ops/convolution/forms.h"

namespace sluice {

inline constexpr CallMode kCompute{};

// The output, allocated before the first launch.
using OutputOf = std::function<TensorView()>;
// The params of launch i.
using ParamsOf = std::function<Conv1dParams(int64_t)>;

// One of several launches, or one that is followed by more.
struct Launch {
  std::string detail = {};      // describes the launches in the plan's text
  int64_t workspace_bytes = 0;  // beside the plan's own
  bool in_passes = false;       // even where chains could be linked
  int64_t number = 0;           // index of the launch
#ifdef SLUICE_CUDA_LIBRARY
  const ConvolutionForms* forms = nullptr;  // of all launches, where they are known already
#endif
};

// Refuses a schedule, because of the reason for aten.
void check_forced(const Convolution& convolution, const char* reason_for_aten);

// Plans, then launches into `output()`, links or explains, as `mode` says. Returns nothing where aten computes the
// sums; else why the chains were not linked, or the plan's text. `result` is the output or a view in its place;
// `params` are of the whole convolution or of one launch, and `output()` may set their input.
std::optional<std::string> run_problem(const Convolution& convolution, Conv1dParams& params, const TensorView& result,
                                       const CallMode& mode, const OutputOf& output, const Launch& launch = {});

// run_problem for `count` launches into one output.
std::optional<std::string> run_launches(const Convolution& convolution, int64_t count, const ParamsOf& params_of,
                                        const TensorView& result, const CallMode& mode, const OutputOf& output,
                                        Launch launch);

// run_problem for the whole convolution, in as many launches as it takes.
std::optional<std::string> run_kernels(const Convolution& convolution, const TensorView& result, const CallMode& mode,
                                       const OutputOf& output);
// The same for a transposed convolution.
std::optional<std::string> run_transposed(const Convolution& convolution, const Conv1dParams& whole,
                                          const TensorView& result, const CallMode& mode, const OutputOf& output);
// Nothing where it is not faster by rows (kernels/conv1d/by_rows.h); else run_problem of rows between transpositions.
std::optional<std::string> run_by_rows(const Convolution& convolution, const Conv1dParams& whole,
                                       const TensorView& result, const CallMode& mode, const OutputOf& output);

}  // namespace sluice
