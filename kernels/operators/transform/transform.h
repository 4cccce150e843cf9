// transform: a chain over every element of a tensor, in one pass.
#pragma once

#include "kernels/operators/transform/policy.h"
#include "kernels/shared/common/geometry.h"
#include "kernels/shared/pipeline/plan.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

struct TransformParams {
  Operand<kMaxDims> input, output;
  int rank;  // dimension 0 is the innermost
  long long sizes[kMaxDims];
  Program program;
  Operand<kMaxDims> operands[kMaxOperands];
  bool is_new = false;  // the output: its memory may have no pages yet
};

// The problem as the plan sees it.
struct TransformProblem {
  long long elements;
  long long inner;   // extent of the innermost dimension
  DType dtype;       // dtype of the input
  int misalignment;  // elements by which an output row starts after a vector boundary: the largest of all rows
  Walk walk;
  bool whole_rows = false;  // rows are contiguous and whole words, in the input and in the output

  long long rows() const { return elements / inner; }
  long long vectors_per_row() const;
};

TransformProblem problem_of(const TransformParams& params);

enum class TransformKernel : int {
#define SLUICE_KERNEL(name, ...) name,
#include "kernels/operators/transform/kernels.def"
};

inline constexpr const char* kTransformKernelNames[] = {
#define SLUICE_KERNEL(name, ...) #name,
#include "kernels/operators/transform/kernels.def"
};
constexpr const char* name_of(TransformKernel kernel) { return kTransformKernelNames[static_cast<int>(kernel)]; }

struct TransformPlan : Plan {
  TransformProblem problem;  // the plan's problem
  int vectors = 0;           // vectors per thread
  TransformKernel which = TransformKernel::direct_flat;
};

// `linked`: for the form with its chain linked in. `plan.threads` is 0 and `plan.reason` names the rule if `device`
// cannot meet the request.
TransformPlan plan_transform(const TransformProblem& problem, const ScheduleRequest& request,
                             const DeviceProperties& device, bool linked);

// For problems without tensors: a contiguous result, with `inner` contiguous elements in a row of the input.
TransformProblem contiguous_problem(long long elements, long long inner, DType dtype);

}  // namespace sluice
