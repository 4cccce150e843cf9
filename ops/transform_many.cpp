// transform with several chains: every result from one pass over the input, if their stages fit into one kernel.
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/common/plan_text.h"
#include "ops/common/raw_op.h"
#include "ops/elementwise.h"
#include "ops/ops.h"
#include "ops/transform_call.h"

namespace sluice {
namespace {

constexpr char kOp[] = "transform";

struct Request {
  TransformCall call;
  std::vector<TransformChain> chains;
};

Request check_arguments(const Tensor& input, const std::vector<std::string>& chains, const OptionalTensors& operands,
                        const std::optional<ScalarType>& dtype, const std::string& schedule,
                        const std::optional<int64_t>& depth) {
  Request request{TransformCall(input, dtype, schedule, depth), {}};
  for (const std::string& chain : chains) request.chains.emplace_back(request.call, chain, operands);
  return request;
}

// One chain that stores the results one after another: stages of chain 0, emit into output 0, stages of chain 1, ...
// The last result is the kernel's own output. Nothing if it would have too many stages or tensors.
std::optional<Chain> combined(const Request& request, const std::vector<TensorView>& outputs) {
  Chain all = request.chains.back().chain;
  Program& program = all.program;
  const int given = static_cast<int>(all.operands.size()), extra = static_cast<int>(outputs.size()) - 1;
  if (given + extra > kMaxOperands) return std::nullopt;
  program = Program{};
  for (std::size_t c = 0; c < request.chains.size(); ++c) {
    const Program& part = request.chains[c].chain.program;
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

// Returns why a chain was not linked, or nothing; or the plan of the first pass.
std::string run(const Request& request, const std::vector<TensorView>& outputs, const CallMode& mode = {}) {
  const TransformCall& call = request.call;
  if (outputs.size() > 1) {
    const std::optional<Chain> all = combined(request, outputs);
    if (all.has_value()) {
      const auto answer = run_linked_transform(kOp, call.input, outputs.back(), *all, call.schedule, mode);
      if (answer.has_value()) return *answer;
    }
  }
  std::string reason;
  for (std::size_t c = 0; c < outputs.size(); ++c) {
    std::string one = run_transform(kOp, call.input, outputs[c], request.chains[c].chain, call.schedule, mode);
    if (mode.plans()) return one;
    if (reason.empty()) reason = std::move(one);
  }
  return reason;
}

std::vector<Tensor> allocate(const Request& request) {
  std::vector<Tensor> results;
  for (const TransformChain& one : request.chains) results.push_back(one.allocate_result(request.call));
  return results;
}

std::vector<Tensor> transform_many(const Request& request) {
  std::vector<Tensor> results = allocate(request);
  run(request, {results.begin(), results.end()});
  return results;
}

std::vector<TensorView> checked_out(const Request& request, const std::vector<Tensor>& out) {
  const std::size_t chains = request.chains.size();
  check(out.size() == chains, kOp, ": out must have one tensor for each of the ", chains, " chains, got ", out.size());
  std::vector<TensorView> outputs(out.begin(), out.end());
  for (std::size_t c = 0; c < out.size(); ++c) {
    request.chains[c].check_result(request.call, outputs[c], /*may_be_same=*/c + 1 == out.size());
    for (std::size_t other = 0; other < c; ++other)
      check_no_overlap(kOp, outputs[c], "another result", outputs[other], /*may_be_same=*/false);
  }
  return outputs;
}

void transform_many_out(const Request& request, const std::vector<Tensor>& out) {
  const std::vector<TensorView> outputs = checked_out(request, out);
  for (const Tensor& one : out) aten::raise_version(kOp, one);
  run(request, outputs);
}

std::string answer(const Request& request, const OptionalTensors& out, const CallMode& mode) {
  check_planned(kOp, mode, request.call.sizes);
  if (out.has_value()) return run(request, checked_out(request, *out), mode);
  std::vector<TensorView> results;
  for (const TransformChain& one : request.chains) results.push_back(one.result(request.call));
  return run(request, results, mode);
}

#define SLUICE_TRANSFORM_MANY_ARGUMENTS                                                                     \
  "Tensor input, str[] chains, Tensor[]? operands=None, *, ScalarType? dtype=None, str schedule=\"auto\", " \
  "int? depth=None"

void define(Library& m) {
  m.def("transform_many(" SLUICE_TRANSFORM_MANY_ARGUMENTS ") -> Tensor[]");
  m.def("transform_many_out(" SLUICE_TRANSFORM_MANY_ARGUMENTS ", Tensor(a!)[] out) -> ()");
  m.def("_prepare_transform_many(" SLUICE_TRANSFORM_MANY_ARGUMENTS ", Tensor[]? out=None) -> str");
  m.def("_plan_transform_many(" SLUICE_TRANSFORM_MANY_ARGUMENTS
        ", Tensor[]? out=None, bool linked, int[] device) -> str");
}

void implement(Library& m) {
  m.impl("transform_many", TORCH_BOX((raw_op<check_arguments, transform_many>)));
  m.impl("transform_many_out", TORCH_BOX((raw_op<check_arguments, transform_many_out>)));
  m.impl("_prepare_transform_many", TORCH_BOX((raw_op<check_arguments, Answer<kOp, answer>::prepare>)));
}

void implement_everywhere(Library& m) {
  m.impl("_plan_transform_many", TORCH_BOX((raw_op<check_arguments, Answer<kOp, answer>::plan>)));
}

}  // namespace

const Registration kTransformMany{define, implement, implement_everywhere};

}  // namespace sluice
