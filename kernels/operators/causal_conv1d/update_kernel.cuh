// A thread has one channel of one sequence, and takes its tokens one after another:
//
//   load history | move the row | token: -> row; sum over history and token, chain, store; -> history
//
// The token is read before its result is stored, so the result may overwrite the input. The row is moved after the
// history's loads and before the first token is written into it. Adjacent threads have adjacent channels. Here
// histories are in shared memory and chains are interpreted; update_registers.cuh has the short histories.
#pragma once

#include "kernels/operators/causal_conv1d/update.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"

namespace sluice {

inline constexpr int kUpdateThreads = 128;  // not tuned

struct UpdateArguments : UpdateTensors {
  FastDivisor channel_blocks;  // divides by a sequence's blocks of channels
};
template <class Element>
struct ChainedUpdateArguments : UpdateArguments {
  ChainArguments<Compute<Element>, 3> pre, post;
};

// The last values before a token: a circular buffer for each thread of the block.
template <class T>
struct SharedHistory {
  T* values;  // the thread's first
  int count, oldest = 0;

  __device__ T& place(int j) const {
    const int i = oldest + j;
    return values[(i < count ? i : i - count) * blockDim.x];
  }
  __device__ void set(long long j, T value) { place(static_cast<int>(j)) = value; }
  __device__ T at(int j) const { return place(j); }
  __device__ void push(T value) {
    if (count == 0) return;
    place(0) = value;
    oldest = oldest + 1 == count ? 0 : oldest + 1;
  }
};

// Columns of one channel's row.
struct StateRow {
  char* first;
  DType dtype;
  long long stride;  // elements

  template <class T>
  __device__ T load(long long column) const {
    return load_as<T>(first, dtype, column * stride);
  }
  // A token: its bits, if the row has its dtype.
  template <class Token>
  __device__ void store(long long column, Token token) const {
    with_element_type(dtype, [&](auto* tag) {
      using Element = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
      Element* const to = reinterpret_cast<Element*>(first) + column * stride;
      if constexpr (std::is_same_v<Element, Token>) {
        *to = token;
      } else {
        *to = convert<Element>(convert<Compute<Token>>(token));
      }
    });
  }
  // Column j takes the bits of column j + shift, for j < kept.
  __device__ void move(long long kept, long long shift) const {
    switch (size_of(dtype)) {
      case 2: return move_as<std::uint16_t>(kept, shift);
      case 4: return move_as<std::uint32_t>(kept, shift);
      default: return move_as<std::uint64_t>(kept, shift);
    }
  }

 private:
  // Eight loads in flight; none reads a column that an earlier store has changed, because `shift` is not negative.
  template <class Bits>
  __device__ void move_as(long long kept, long long shift) const {
    constexpr int kInFlight = 8;
    Bits* const bits = reinterpret_cast<Bits*>(first);
    for (long long j = 0; j < kept; j += kInFlight) {
      Bits columns[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (j + i < kept) columns[i] = bits[(j + i + shift) * stride];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (j + i < kept) bits[(j + i) * stride] = columns[i];
      }
    }
  }
};

// Zeros in one channel's results.
template <class Element>
__device__ __forceinline__ void store_zeros(const Operand<3>& output, long long n, long long c, TokenRange tokens) {
#pragma unroll 1
  for (long long t = tokens.first; t < tokens.last; ++t) {
    output.as<Element>()[n * output.strides[0] + c * output.strides[1] + t * output.strides[2]] =
        convert<Element>(Compute<Element>(0));
  }
}

// The thread's sequence, after writing zeros for missing sequences or slots; false if nothing is left to do.
template <class Element>
__device__ __forceinline__ bool find_sequence(const UpdateTensors& a, long long n, long long c, UpdateSequence& s) {
  store_zeros<Element>(a.output, n, c, tokens_before(a, n));
  if (n >= a.sequences) return false;
  s = sequence_of(a, n);
  store_zeros<Element>(a.output, n, c, tokens_behind(a, n));
  if (s.slot < 0) store_zeros<Element>(a.output, n, c, {s.token, s.token + s.count});
  return s.slot >= 0 && s.count > 0;
}

__device__ __forceinline__ StateRow row_of(const UpdateTensors& a, const UpdateSequence& s, long long c) {
  const long long row = s.slot * a.state.strides[0] + c * a.state.strides[1];
  return {static_cast<char*>(a.state.data) + row * static_cast<long long>(size_of(a.state.dtype)), a.state.dtype,
          a.state.strides[2]};
}

// The thread's sequence and channel; false if there is no such channel.
__device__ __forceinline__ bool find_channel(const UpdateArguments& a, long long& n, long long& c) {
  const unsigned row = a.channel_blocks.quotient_of_31_bits(blockIdx.x);
  const unsigned block = blockIdx.x - row * static_cast<unsigned>(a.channel_blocks.divisor);
  n = row;
  c = static_cast<long long>(block) * blockDim.x + threadIdx.x;
  return c < a.channels;
}

// One value through a chain whose operands have the result's shape.
template <class T>
__device__ __forceinline__ T apply_chain(const ChainArguments<T, 3>& chain, long long n, long long c, long long t,
                                         T value) {
  if (chain.count == 0) return value;
  T values[1] = {value};
  run_chain<ElementwiseChain<T, 3>, 1, 1>(
      chain,
      [&](const long long* strides, int) {
        return Place{n * strides[0] + c * strides[1] + t * strides[2], 0, 0, 1, 0};
      },
      values);
  return values[0];
}

template <class Element>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(const __grid_constant__ ChainedUpdateArguments<Element> a) {
  using T = Compute<Element>;
  extern __shared__ __align__(16) unsigned char shared[];
  long long n, c;
  if (!find_channel(a, n, c)) return;
  UpdateSequence s;
  if (!find_sequence<Element>(a, n, c, s)) return;
  const StateRow state = row_of(a, s, c);
  SharedHistory<T> history{reinterpret_cast<T*>(shared) + threadIdx.x, static_cast<int>(a.history())};
  for (int j = 0; j < history.count; ++j) history.set(j, state.template load<T>(s.column(s.first + j)));
  state.move(s.kept, s.shift);

  const auto tap = [&](int k) {
    return load_as<T>(a.weight.data, a.weight.dtype, c * a.weight.strides[0] + k * a.weight.strides[1]);
  };
  const T bias = a.bias.exists() ? load_as<T>(a.bias.data, a.bias.dtype, c * a.bias.strides[0]) : T(0);
  for (long long t = 0; t < s.count; ++t) {
    const long long place = s.token + t;
    const long long from = n * a.input.strides[0] + c * a.input.strides[1] + place * a.input.strides[2];
    Element token = a.input.template as<const Element>()[from];
    if (a.pre.count > 0) token = convert<Element>(apply_chain(a.pre, n, c, place, convert<T>(token)));
    if (s.writes(t)) state.store(s.column(s.target + t), token);
    const T value = convert<T>(token);
    T sum = bias;
    for (int k = 0; k + 1 < a.taps; ++k) {
      sum = multiply_add(tap(k), history.at(static_cast<int>(k * a.dilation)), sum);
    }
    sum = multiply_add(tap(static_cast<int>(a.taps) - 1), value, sum);
    sum = apply_chain(a.post, n, c, place, sum);
    const long long to = n * a.output.strides[0] + c * a.output.strides[1] + place * a.output.strides[2];
    a.output.template as<Element>()[to] = convert<Element>(sum);
    history.push(value);
  }
}

}  // namespace sluice
