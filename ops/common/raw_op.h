// The entries of a raw op take one list of arguments: the op itself, its out variant, and the one that only links. The
// list is written once, as the signature of the function that checks it; the entries take that function's result.
#pragma once

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

}  // namespace sluice
