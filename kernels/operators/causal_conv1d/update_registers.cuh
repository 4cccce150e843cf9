// Histories of up to nine columns, in registers: K = 4 with dilation 3, K = 10 without. Any strides, dtypes, tokens and
// state layout; light chains. A thread has one channel of one sequence.
//
//   age of a value     9 8 7 6 5 4 3 2 1 | 0          columns before the token, and the token
//   taps, dilation 3   3     2     1     | 0          tap `back` meets the value of age back * Dilation
//
// Ages count from the newest, so every index is a compile-time constant, and a branch that is uniform over the grid
// skips taps that a call does not have. Sums go from the oldest tap to the newest, as everywhere.
#pragma once

#include "kernels/operators/causal_conv1d/light_chain.cuh"
#include "kernels/operators/causal_conv1d/update_kernel.cuh"

namespace sluice {

inline constexpr int kMostRegisterHistory = 9;
inline constexpr int kRegisterTokens = 4;  // tokens of a sequence, in flight at once

template <class Element>
struct LightUpdateArguments : UpdateArguments {
  bool is_uniform;  // state, weight and bias have the input's dtype
  LightChain<Compute<Element>> pre, post;
};

// A channel's values before its first token.
template <class T, int Taps, int History>
struct RegisterHistory {
  T values[History];  // values of age 1 and on
  T taps[Taps];       // the newest first
  T bias;

  __device__ __forceinline__ void push(T value) {
#pragma unroll
    for (int j = History - 1; j > 0; --j) values[j] = values[j - 1];
    values[0] = value;
  }
};

// `column_of(j)`: the column of age j + 1. Converting waits, so the caller converts, after all loads.
template <class Stored, int History, class ColumnOf>
__device__ __forceinline__ void load_history(const StateRow& state, int history, const ColumnOf& column_of,
                                             Stored (&values)[History]) {
#pragma unroll
  for (int j = 0; j < History; ++j) {
    values[j] = Stored{};
    if (j < history) values[j] = reinterpret_cast<const Stored*>(state.first)[column_of(j) * state.stride];
  }
}

template <class Stored, int Taps>
__device__ __forceinline__ void load_taps(const UpdateTensors& a, long long c, Stored (&values)[Taps]) {
  const Stored* const first = a.weight.as<const Stored>() + c * a.weight.strides[0];
  const int count = static_cast<int>(a.taps);
#pragma unroll
  for (int k = 0; k < Taps; ++k) {
    values[k] = Stored{};
    if (k < count) values[k] = first[(count - 1 - k) * a.weight.strides[1]];
  }
}

template <class Stored, int Count, class T>
__device__ __forceinline__ void convert_all(const Stored (&from)[Count], T (&to)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) to[i] = convert<T>(from[i]);
}

template <class Element, class T, int Taps, int History, class ColumnOf>
__device__ __forceinline__ void load_channel(const LightUpdateArguments<Element>& a, const StateRow& state, long long c,
                                             const ColumnOf& column_of, RegisterHistory<T, Taps, History>& history) {
  const int columns = static_cast<int>(a.history());
  if (a.is_uniform) {
    Element values[History], taps[Taps], bias{};
    load_history(state, columns, column_of, values);
    load_taps(a, c, taps);
    if (a.bias.exists()) bias = a.bias.template as<const Element>()[c * a.bias.strides[0]];
    convert_all(values, history.values);
    convert_all(taps, history.taps);
    history.bias = convert<T>(bias);
    return;
  }
  with_element_type(state.dtype, [&](auto* tag) {
    std::remove_cv_t<std::remove_pointer_t<decltype(tag)>> values[History];
    load_history(state, columns, column_of, values);
    convert_all(values, history.values);
  });
  with_element_type(a.weight.dtype, [&](auto* tag) {
    std::remove_cv_t<std::remove_pointer_t<decltype(tag)>> taps[Taps];
    load_taps(a, c, taps);
    convert_all(taps, history.taps);
  });
  history.bias = a.bias.exists() ? load_as<T>(a.bias.data, a.bias.dtype, c * a.bias.strides[0]) : T(0);
}

// One value through a light chain whose operands have any dtype and strides.
template <class Element, class T>
__device__ __forceinline__ T apply_light_chain(const LightChain<T>& chain, long long n, long long c, long long t,
                                               T value) {
  T values[1] = {value};
#pragma unroll 1
  for (int s = 0; s < chain.count; ++s) {
    const LightStage<T>& stage = chain.stages[s];
    run_light_stage<Element>(stage, values, [&](T* others) {
      const Operand<3>& operand = stage.operand;
      others[0] = load_as<T>(operand.data, operand.dtype,
                             n * operand.strides[0] + c * operand.strides[1] + t * operand.strides[2]);
    });
  }
  return values[0];
}

// Resident blocks per SM: as many as leave a thread the registers for all its values.
template <class Element, int Taps, int Dilation>
inline constexpr int kRegisterBlocks = sizeof(Element) == 8        ? 3
                                       : (Taps - 1) * Dilation > 3 ? 4
                                                                   : 5;

// `Taps`: the most that a call has.
template <class Element, int Taps, int Dilation>
__global__ void __launch_bounds__(kUpdateThreads, kRegisterBlocks<Element, Taps, Dilation>)
    update_registers_kernel(const __grid_constant__ LightUpdateArguments<Element> a) {
  using T = Compute<Element>;
  constexpr int kHistory = (Taps - 1) * Dilation;
  long long n, c;
  if (!find_channel(a, n, c)) return;
  UpdateSequence s;
  if (!find_sequence<Element>(a, n, c, s)) return;
  const Element* const input = a.input.template as<const Element>() + n * a.input.strides[0] + c * a.input.strides[1] +
                               s.token * a.input.strides[2];
  Element* const output = a.output.template as<Element>() + n * a.output.strides[0] + c * a.output.strides[1] +
                          s.token * a.output.strides[2];
  const auto load_token = [&](long long t) { return t < s.count ? input[t * a.input.strides[2]] : Element{}; };
  Element tokens[kRegisterTokens];  // t and on
#pragma unroll
  for (int i = 0; i < kRegisterTokens; ++i) tokens[i] = load_token(i);
  const StateRow state = row_of(a, s, c);
  long long column = s.columns > 0 ? s.column(s.target) : 0;  // the next token's column
  // One division: a circular history ends at the first token.
  const long long newest = (s.wraps ? column : s.first + a.history()) - 1;
  RegisterHistory<T, Taps, kHistory> history;
  load_channel(
      a, state, c, [&](int j) { return s.wraps && newest < j ? newest - j + s.columns : newest - j; }, history);
  state.move(s.kept, s.shift);

  const int taps = static_cast<int>(a.taps);
#pragma unroll 1
  for (long long t = 0; t < s.count; ++t) {
    Element token = tokens[0];
#pragma unroll
    for (int i = 0; i + 1 < kRegisterTokens; ++i) tokens[i] = tokens[i + 1];
    tokens[kRegisterTokens - 1] = load_token(t + kRegisterTokens);
    if (a.pre.count > 0) {
      token = convert<Element>(apply_light_chain<Element>(a.pre, n, c, s.token + t, convert<T>(token)));
    }
    if (t >= s.least && column < s.columns) state.store(column, token);
    ++column;
    if (s.wraps && column == s.columns) column = 0;
    const T value = convert<T>(token);
    T sum = history.bias;
#pragma unroll
    for (int back = Taps - 1; back > 0; --back) {
      if (back < taps) sum = multiply_add(history.taps[back], history.values[back * Dilation - 1], sum);
    }
    sum = multiply_add(history.taps[0], value, sum);
    sum = apply_light_chain<Element>(a.post, n, c, s.token + t, sum);
    output[t * a.output.strides[2]] = convert<Element>(sum);
    history.push(value);
  }
}

}  // namespace sluice
