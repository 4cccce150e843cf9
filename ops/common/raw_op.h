// The entries of a raw op take one list of arguments. It is written once, as the signature of the function that checks
// it and returns a call; the entries take that call:
//
//   op             kRun(call)                 the result
//   op_out         kOut(call, out)            writes the caller's tensor
//   _prepare_op    kAnswer(call, out, mode)   only links; why the chains are not linked
//   _plan_op       kAnswer(call, out, mode)   a plan as text, for a device that need not be present
//   _stream_op     kOut for each of many chunks (streamed_op.h)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/common/plan_text.h"
#include "ops/common/registration.h"
#include "ops/common/streamed_op.h"

namespace sluice {

template <auto kCheck, auto kRun>
struct RawOp;

// `More` follows the list in the schema: an out variant's `out`.
template <class Call, class... Arguments, Call (*kCheck)(Arguments...), class Result, class... More,
          Result (*kRun)(const Call&, More...)>
struct RawOp<kCheck, kRun> {
  static Result run(Arguments... arguments, More... more) { return kRun(kCheck(arguments...), more...); }
};

// TORCH_BOX((raw_op<check_arguments, conv1d>)): in parentheses, because a macro would split its arguments at the comma.
template <auto kCheck, auto kRun>
inline constexpr auto raw_op = &RawOp<kCheck, kRun>::run;

template <const char* kOp, auto kAnswer>
struct Answer;

// `Out`: an optional tensor, or the list of several results.
template <const char* kOp, class Call, class Out, std::string (*kAnswer)(const Call&, const Out&, const CallMode&)>
struct Answer<kOp, kAnswer> {
  static std::string prepare(const Call& call, const Out& out) {
    return kAnswer(call, out, {.action = Action::prepare});
  }
  static std::string plan(const Call& call, const Out& out, bool linked, const std::vector<int64_t>& device) {
    return kAnswer(call, out, mode_of_plan(kOp, linked, device));
  }
};

// All entries of an op with one result. `kArguments`: the list in the schema.
template <const char* kOp, const char* kArguments, auto kCheck, auto kRun, auto kOut, auto kAnswer>
struct Entries {
  static void define(Library& m) {
    const auto entry = [&](const std::string& name, const std::string& more) {
      m.def((name + "(" + kArguments + more).c_str());
    };
    const std::string op = kOp;
    entry(op, ") -> Tensor");
    entry(op + "_out", ", Tensor(a!) out) -> ()");
    entry("_prepare_" + op, ", Tensor? out=None) -> str");
    entry("_plan_" + op, ", Tensor? out=None, bool linked, int[] device) -> str");
    entry("_stream_" + op, kStreamedArguments);
  }

  static void implement(Library& m) {
    const std::string op = kOp;
    m.impl(op.c_str(), TORCH_BOX((raw_op<kCheck, kRun>)));
    m.impl((op + "_out").c_str(), TORCH_BOX((raw_op<kCheck, kOut>)));
    m.impl(("_prepare_" + op).c_str(), TORCH_BOX((raw_op<kCheck, Answer<kOp, kAnswer>::prepare>)));
    m.impl(("_stream_" + op).c_str(), TORCH_BOX((streamed_op<kCheck, kOut>)));
  }

  static void implement_everywhere(Library& m) {
    m.impl((std::string("_plan_") + kOp).c_str(), TORCH_BOX((raw_op<kCheck, Answer<kOp, kAnswer>::plan>)));
  }

  static constexpr Registration kRegistration{define, implement, implement_everywhere};
};

}  // namespace sluice
