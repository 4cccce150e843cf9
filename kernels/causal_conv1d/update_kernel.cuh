// A thread has one channel of one sequence, and takes its tokens one after another:
//
//   history -> window | move the row | token: -> row; sum over window and token, chain, store; -> window
//
// The token is read before its result is stored, so the result may lie in the input's place. The row is moved behind
// the history's loads and before the first token is written into it. Neighbouring threads have neighbouring channels.
#pragma once

#include "kernels/causal_conv1d/update.h"
#include "kernels/common/element.cuh"
#include "kernels/common/vector.cuh"
#include "kernels/stages/epilogue.cuh"
#include "kernels/stages/interpreter.cuh"

namespace sluice {

inline constexpr int kUpdateThreads = 128;  // not tuned

template <class Element>
struct UpdateArguments : UpdateTensors {
  int channel_blocks;     // of a sequence
  bool silu;              // behind the sums, where the kernel has no chains
  bool has_weight_words;  // rows of taps one behind another, of the input's dtype, from a 16-byte address on
  bool has_bias_words;
};

// Kernels without chains take two kilobytes less.
template <class Element>
struct ChainedUpdateArguments : UpdateArguments<Element> {
  ChainArguments<Compute<Element>, 3> pre, post;
};
template <class Element>
inline constexpr bool kHasChains = false;
template <class Element>
inline constexpr bool kHasChains<ChainedUpdateArguments<Element>> = true;

// The last values before a token, oldest first: of a count that is known, in registers.
template <class T, int Count>
struct RegisterWindow {
  T values[Count];

  __device__ void set(long long j, T value) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      if (i == j) values[i] = value;
    }
  }
  __device__ T at(int j) const { return values[j]; }
  __device__ void push(T value) {
#pragma unroll
    for (int i = 0; i + 1 < Count; ++i) values[i] = values[i + 1];
    values[Count - 1] = value;
  }
};

// Any count, in shared memory: a ring for each thread of the block.
template <class T>
struct SharedWindow {
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
  // A token: its bits, where the row has its type.
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
  // The bits of another column.
  __device__ void move(long long to, long long from) const {
    switch (size_of(dtype)) {
      case 2: return move_as<std::uint16_t>(to, from);
      case 4: return move_as<std::uint32_t>(to, from);
      default: return move_as<std::uint64_t>(to, from);
    }
  }

 private:
  template <class Bits>
  __device__ void move_as(long long to, long long from) const {
    Bits* const bits = reinterpret_cast<Bits*>(first);
    bits[to * stride] = bits[from * stride];
  }
};

template <class Element, class T>
__device__ __forceinline__ T silu_of(T value) {
  constexpr Precision kPrecision = sizeof(Element) == 2 ? Precision::half : Precision::single;
  return evaluate<Op::silu, kPrecision>(value, Parameters<T>{});
}

// One value through a chain whose operands are of the result's shape.
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

// Without chains there is a SiLU at most, and the state has the input's dtype.
template <class Element, int Taps, class Arguments, class Window>
__device__ __forceinline__ void update_channel(const Arguments& a, long long n, long long c, Window& window) {
  using T = Compute<Element>;
  constexpr bool HasChains = kHasChains<Arguments>;
  const auto zeros = [&](TokenRange tokens) {
    for (long long t = tokens.first; t < tokens.last; ++t) {
      a.output.template as<Element>()[n * a.output.strides[0] + c * a.output.strides[1] + t * a.output.strides[2]] =
          convert<Element>(T(0));
    }
  };
  zeros(tokens_before(a, n));
  if (n >= a.sequences) return;
  const UpdateSequence s = sequence_of(a, n);
  zeros(tokens_behind(a, n));
  if (s.slot < 0) zeros({s.token, s.token + s.count});
  if (s.slot < 0 || s.count == 0) return;

  const long long row = s.slot * a.state.strides[0] + c * a.state.strides[1];
  const StateRow state{static_cast<char*>(a.state.data) + row * size_of(a.state.dtype),
                       HasChains ? a.state.dtype : kDType<Element>, a.state.strides[2]};
  const int history = static_cast<int>(a.history());
#pragma unroll
  for (int j = 0; j < (Taps > 0 ? Taps - 1 : history); ++j) {
    window.set(j, state.template load<T>(s.column(s.first + j)));
  }
  for (long long j = 0; j < s.kept; ++j) state.move(j, j + s.shift);

  const auto tap = [&](int k) {
    return load_as<T>(a.weight.data, a.weight.dtype, c * a.weight.strides[0] + k * a.weight.strides[1]);
  };
  T taps[Taps > 0 ? Taps : 1];
  if constexpr (Taps > 0) {
#pragma unroll
    for (int k = 0; k < Taps; ++k) taps[k] = tap(k);
  }
  const T bias = a.bias.exists() ? load_as<T>(a.bias.data, a.bias.dtype, c * a.bias.strides[0]) : T(0);
  for (long long t = 0; t < s.count; ++t) {
    const long long place = s.token + t;
    const long long from = n * a.input.strides[0] + c * a.input.strides[1] + place * a.input.strides[2];
    Element token = a.input.template as<const Element>()[from];
    if constexpr (HasChains) {
      if (a.pre.count > 0) token = convert<Element>(apply_chain(a.pre, n, c, place, convert<T>(token)));
    }
    if (s.writes(t)) state.store(s.column(s.target + t), token);
    const T value = convert<T>(token);
    T sum = bias;
    if constexpr (Taps > 0) {
#pragma unroll
      for (int k = 0; k + 1 < Taps; ++k) sum = multiply_add(taps[k], window.at(k), sum);
      sum = multiply_add(taps[Taps - 1], value, sum);
    } else {
      for (int k = 0; k + 1 < a.taps; ++k) {
        sum = multiply_add(tap(k), window.at(static_cast<int>(k * a.dilation)), sum);
      }
      sum = multiply_add(tap(static_cast<int>(a.taps) - 1), value, sum);
    }
    if constexpr (HasChains) {
      sum = apply_chain(a.post, n, c, place, sum);
    } else if (a.silu) {
      sum = silu_of<Element>(sum);
    }
    const long long to = n * a.output.strides[0] + c * a.output.strides[1] + place * a.output.strides[2];
    a.output.template as<Element>()[to] = convert<Element>(sum);
    window.push(value);
  }
}

// The thread's sequence and the first of its `Width` channels; false where there are none.
template <int Width, class Element>
__device__ __forceinline__ bool find_channels(const UpdateArguments<Element>& a, long long& n, long long& c) {
  n = blockIdx.x / a.channel_blocks;
  c = (static_cast<long long>(blockIdx.x % a.channel_blocks) * blockDim.x + threadIdx.x) * Width;
  return c < a.channels;
}

template <class Element, int Taps>
__global__ void __launch_bounds__(kUpdateThreads)
    update_few_taps_kernel(const __grid_constant__ UpdateArguments<Element> a) {
  long long n, c;
  if (!find_channels<1>(a, n, c)) return;
  RegisterWindow<Compute<Element>, Taps - 1> window;
  update_channel<Element, Taps>(a, n, c, window);
}

template <class Element>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(const __grid_constant__ ChainedUpdateArguments<Element> a) {
  extern __shared__ __align__(16) unsigned char shared[];
  long long n, c;
  if (!find_channels<1>(a, n, c)) return;
  using T = Compute<Element>;
  SharedWindow<T> window{reinterpret_cast<T*>(shared) + threadIdx.x, static_cast<int>(a.history())};
  update_channel<Element, 0>(a, n, c, window);
}

}  // namespace sluice
