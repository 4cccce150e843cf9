// transform with several chains: every result from one pass over the input, where their stages fit into one kernel.
#include "ops/allocate.h"
#include "ops/checks.h"
#include "ops/dispatch.h"
#include "ops/transform.h"

namespace sluice {
namespace {

constexpr const char* kOp = "transform";

struct Request {
  TensorView input;
  std::vector<Chain> chains;
  std::vector<DType> dtypes;  // of the results
  ScheduleRequest schedule;
};

Request check_arguments(const Tensor& input, const std::vector<std::string>& chains, const OptionalTensors& operands,
                        const std::optional<ScalarType>& dtype, const std::string& schedule,
                        const std::optional<int64_t>& depth) {
  const TensorView view(input);
  check_floating(kOp, "input", view);
  Request request{view, {}, {}, check_schedule(kOp, schedule, depth)};
  const std::optional<DType> wanted = check_result_dtype(kOp, dtype);
  for (const std::string& chain : chains) {
    const Chain& parsed = request.chains.emplace_back(kOp, "chain", chain, operands, view,
                                                      std::vector<int64_t>(view.sizes, view.sizes + view.rank));
    request.dtypes.push_back(wanted.value_or(parsed.result_dtype().value_or(view.dtype)));
  }
  return request;
}

// One chain that stores a result after another: stages of chain 0, emit into output 0, stages of chain 1, ... The last
// result is the kernel's own output. Nothing where it would have too many stages or tensors.
std::optional<Chain> combined(const Request& request, const std::vector<TensorView>& outputs) {
  Chain all = request.chains.back();
  Program& program = all.program;
  const int given = static_cast<int>(all.operands.size()), extra = static_cast<int>(outputs.size()) - 1;
  if (given + extra > kMaxOperands) return std::nullopt;
  program = Program{};
  for (std::size_t c = 0; c < request.chains.size(); ++c) {
    const Program& part = request.chains[c].program;
    const bool last = c + 1 == request.chains.size();
    if (program.count + part.count + !last > kMaxStages) return std::nullopt;
    for (int s = 0; s < part.count; ++s) program.stages[program.count++] = part.stages[s];
    if (last) break;
    Stage& emit = program.stages[program.count++];
    emit = Stage{};
    emit.op = Op::emit;
    for (signed char& operand : emit.operand) operand = -1;
    emit.operand[0] = static_cast<signed char>(given + static_cast<int>(c));
    all.operands.push_back(outputs[c]);
  }
  program.operands = given + extra;
  return all;
}

void run(const Request& request, const std::vector<TensorView>& outputs) {
  if (outputs.size() > 1) {
    const std::optional<Chain> all = combined(request, outputs);
    if (all.has_value() && run_linked_transform(kOp, request.input, outputs.back(), *all, request.schedule)) return;
  }
  for (std::size_t c = 0; c < outputs.size(); ++c) {
    run_transform(kOp, request.input, outputs[c], request.chains[c], request.schedule);
  }
}

std::vector<Tensor> transform_many(const Tensor& input, const std::vector<std::string>& chains, const OptionalTensors& operands,
                                   const std::optional<ScalarType>& dtype, const std::string& schedule,
                                   const std::optional<int64_t>& depth) {
  const Request request = check_arguments(input, chains, operands, dtype, schedule, depth);
  std::vector<Tensor> results;
  std::vector<TensorView> outputs;
  for (const DType result : request.dtypes) {
    results.push_back(allocate_like(kOp, request.input, result));
    outputs.emplace_back(results.back());
  }
  run(request, outputs);
  return results;
}

void transform_many_out(const Tensor& input, const std::vector<std::string>& chains, const OptionalTensors& operands,
                        const std::optional<ScalarType>& dtype, const std::string& schedule, const std::optional<int64_t>& depth,
                        const std::vector<Tensor>& out) {
  const Request request = check_arguments(input, chains, operands, dtype, schedule, depth);
  check(out.size() == chains.size(), kOp, ": out must have one tensor for each of the ", chains.size(), " chains, got ",
        out.size());
  std::vector<TensorView> outputs;
  for (std::size_t c = 0; c < out.size(); ++c) {
    const TensorView& view = outputs.emplace_back(out[c]);
    check_out(kOp, view, {request.input.sizes, request.input.sizes + request.input.rank}, request.dtypes[c], request.input);
    check_no_overlap(kOp, view, "input", request.input, /*may_be_same=*/c + 1 == out.size());
    for (const TensorView& operand : request.chains[c].operands)
      check_no_overlap(kOp, view, "an operand", operand, /*may_be_same=*/c + 1 == out.size());
    for (std::size_t other = 0; other < c; ++other)
      check_no_overlap(kOp, view, "another result", outputs[other], /*may_be_same=*/false);
  }
  run(request, outputs);
}

}  // namespace

SLUICE_DEVICE_KERNELS(m) {
  m.impl("transform_many", TORCH_BOX(&transform_many));
  m.impl("transform_many_out", TORCH_BOX(&transform_many_out));
}

#ifndef SLUICE_CUDA_LIBRARY
#define SLUICE_TRANSFORM_MANY_ARGUMENTS                                                                     \
  "Tensor input, str[] chains, Tensor[]? operands=None, *, ScalarType? dtype=None, str schedule=\"auto\", " \
  "int? depth=None"

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  m.def("transform_many(" SLUICE_TRANSFORM_MANY_ARGUMENTS ") -> Tensor[]");
  m.def("transform_many_out(" SLUICE_TRANSFORM_MANY_ARGUMENTS ", Tensor(a!)[] out) -> ()");
}
#endif

}  // namespace sluice
