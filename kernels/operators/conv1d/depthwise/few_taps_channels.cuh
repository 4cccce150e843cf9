// Depthwise conv1d with few taps, channels-last: a device copy's memory traffic, and a few products an output.
//
// A block is `lanes` threads across the channels by as many below them as fit. A thread has four channels, whose taps
// and window of positions are in its registers, at up to kPositions positions, `dilation` apart:
//
//                     channels ->
//   position t - 3   | vvvv |                before the first output
//            ...     | vvvv |
//   position t       | vvvv |  -> output t
//            ...     | vvvv |  -> ...        each vector is loaded once a thread, and all before the first sum
#pragma once

#include "kernels/operators/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// The kernels' compile-time shape. `kDilates`: consecutive positions are `dilation` apart. `kAhead`: there may be a
// `pre`, and the operands of `post` are loaded with the window, not after the sums.
template <class Element>
struct FewTapsShape {
  static constexpr int kTaps = kFewTaps, kPositions = kFewTapsPositions<Element>;
  static constexpr bool kDilates = false, kAhead = false;
};
template <class Element>
struct GatedShape {
  static constexpr int kTaps = kFewTaps, kPositions = gated_positions(kDType<Element>);
  static constexpr bool kDilates = true, kAhead = true;
};
template <class Element>
struct EightTapsShape {
  static constexpr int kTaps = kEightTaps, kPositions = eight_taps_positions(kDType<Element>);
  static constexpr bool kDilates = true, kAhead = true;
};

// All positions are of one subsequence.
struct OneSubsequence {
  template <class... Arguments>
  __device__ explicit OneSubsequence(const Arguments&...) {}

  __device__ __forceinline__ static constexpr bool begins(int) { return false; }
  __device__ __forceinline__ static constexpr bool is_skipped(int) { return false; }
  __device__ __forceinline__ static constexpr bool is_zero(int) { return false; }
  __device__ __forceinline__ static constexpr bool is_foreign(int) { return false; }
  template <class Chains, class... Arguments>
  __device__ __forceinline__ void finish(const Arguments&...) const {}
};

// The taps of a thread's channels. A contiguous weight of the input's dtype is read in place, in as many quads as there
// are taps.
template <class Element, int Taps>
__device__ __forceinline__ void load_channel_taps(const WordsArguments<Element>& a, long long channel,
                                                  float (&taps)[kFewTapsChannels][Taps]) {
  if (!a.contiguous_weight) return load_few_taps(a, channel, taps);
  const Element* const from = a.weight.template as<const Element>() + channel * a.taps;
  for_counts<Taps>(a.taps, [&](auto count) { load_quads_of_taps<decltype(count)::value>(from, taps); });
}

// The values before the input, in the first `Count` vectors of a window. Without a function call, which would wait for
// the vectors in flight.
template <int Count, int Window, class Element>
__device__ __forceinline__ void load_history(const Conv1dArguments<Element>& a, long long batch, int channel, int start,
                                             int dilation, Quad<Element> (&window)[Window]) {
  const long long* const strides = a.history.strides;
  with_element_type(known_dtype(LinkedTensor::history, a.history.dtype), [&](auto* tag) {
    const auto* const from = static_cast<decltype(tag)>(a.history.data) + batch * strides[0] + channel * strides[1] +
                             (start + a.padding) * strides[2];
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      if (start + r * dilation >= 0) break;
      float values[kFewTapsChannels];
#pragma unroll
      for (int i = 0; i < kFewTapsChannels; ++i) {
        values[i] = convert<float>(from[i * strides[1] + r * (dilation * strides[2])]);
      }
      window[r] = Quad<Element>::of(values);
    }
  });
}

// Applies `pre` to four channels at the window's positions `at`, `at` + `dilation`, ..., rounded as transform would.
// Values outside the input are not changed.
template <class Pre, int Count, class Element>
__device__ __forceinline__ void prepare_window(const Conv1dArguments<Element>& a, long long batch, int channel, int at,
                                               int dilation, Quad<Element> (&window)[Count]) {
  const Pre pre{a.pre};
  if (pre.empty()) return;
  const auto exists = [&](int r) { return at + r * dilation >= 0 && at + r * dilation < a.length; };
  const auto load = [&](int r) {
    return load_operands<kFewTapsChannels, 1>(
        pre, a.pre,
        [&a, batch, channel, position = at + r * dilation, there = exists(r)](const long long* strides, int) {
          const long long offset = batch * strides[0] + channel * strides[1] + position * strides[2];
          return Place{.offset = offset, .stride = strides[1], .first = 0, .last = there ? kFewTapsChannels : 0};
        });
  };
  decltype(load(0)) loaded[Count];
#pragma unroll
  for (int r = 0; r < Count; ++r) loaded[r] = load(r);
#pragma unroll
  for (int r = 0; r < Count; ++r) {
    float values[kFewTapsChannels];
    window[r].unpack_to(values);
    pre.template apply<kFewTapsChannels, 1>(values, loaded[r]);
    if (exists(r)) window[r] = Quad<Element>::of(values);
  }
}

// `Subsequences` describes rows with several sequences (kernels/operators/causal_conv1d/sequences_channels.cuh):
//
//   Subsequences(a, batch, position, end)    position .. end - 1 are the thread's
//   are_any()                        whether any of these is true:
//   begins(i)                        a subsequence begins at position + i, after zeros
//   is_skipped(i), is_zero(i)        the result at position + i is from `finish`, here or in another thread, or is 0
//   is_foreign(r)                    vector r of the window is of another subsequence than the first position: it is 0
//   finish<Chains>(a, channel)       a thread's remaining work on subsequences that begin in its positions
template <class Chains, class Shape, class Subsequences = OneSubsequence, class Arguments>
__device__ __forceinline__ void few_taps_channels(const Arguments& a) {
  using Element = typename Arguments::Input;
  using Post = typename Chains::Post;
  constexpr int kTaps = Shape::kTaps, kPositions = Shape::kPositions, kWindow = kPositions + kTaps - 1;
  constexpr int kChannels = kFewTapsChannels, kChained = kFewTapsChained / kChannels;
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lane = static_cast<int>(threadIdx.x) - below * a.lanes;
  const int upper = static_cast<int>(a.by_across.quotient_of_31_bits(blockIdx.x));
  const int row = static_cast<int>(a.by_along.quotient_of_31_bits(upper));
  const int channel =
      ((static_cast<int>(blockIdx.x) - upper * static_cast<int>(a.by_across.divisor)) * a.lanes + lane) * kChannels;
  // Counted in steps of the dilation, from the row's residue on.
  const int position =
      ((upper - row * static_cast<int>(a.by_along.divisor)) * a.rows_per_block + below) * a.vectors_per_thread;
  const int dilation = Shape::kDilates ? static_cast<int>(a.dilation) : 1;
  const int batch = Shape::kDilates ? row / dilation : row, residue = row - batch * dilation;
  const int output_length = static_cast<int>(a.output_length);
  const int outputs = Shape::kDilates ? (output_length - residue + dilation - 1) / dilation : output_length;
  if (channel >= a.channels || position >= outputs) return;

  const int length = static_cast<int>(a.length), padding = static_cast<int>(a.padding);
  const int start = residue + position * dilation - padding;
  const long long step = Shape::kDilates ? a.input.strides[2] * dilation : a.input.strides[2];
  const Element* const from =
      a.input.template as<const Element>() + batch * a.input.strides[0] + channel + start * a.input.strides[2];
  Quad<Element> window[kWindow];
  const int end = min_of(outputs, position + a.vectors_per_thread);
  const int last = min_of(length, start + (a.vectors_per_thread + a.taps - 2) * dilation + 1);
#pragma unroll
  for (int r = 0; r < kWindow; ++r) {
    window[r] = Quad<Element>{};
    if (start + r * dilation >= 0 && start + r * dilation < last) window[r] = Quad<Element>::load(from + r * step);
  }
  const auto place_of = [=](const long long* strides, int i, bool there) {
    const long long offset =
        batch * strides[0] + channel * strides[1] + (residue + (position + i) * dilation) * strides[2];
    return Place{.offset = offset, .stride = strides[1], .first = 0, .last = there ? kChannels : 0};
  };
  const Post post{a.post};
  const auto load_ahead = [&](int c) {
    return load_operands<kChannels, kChained>(post, a.post,
                                              [place_of, c, position, end](const long long* strides, int j) {
                                                return place_of(strides, c + j, position + c + j < end);
                                              });
  };
  [[maybe_unused]] decltype(load_ahead(0)) loaded[Shape::kAhead ? kPositions / kChained : 1];
  if constexpr (Shape::kAhead) {
#pragma unroll
    for (int c = 0; c < kPositions; c += kChained) loaded[c / kChained] = load_ahead(c);
    prepare_window<typename Chains::Pre>(a, batch, channel, start, dilation, window);
  }
  if constexpr (Arguments::kMayHaveHistory) {
    if (a.history.exists() && start < 0) {
      if constexpr (kTaps == kFewTaps) {
#pragma unroll
        for (int r = 0; r < kTaps - 1; ++r) {
          const int at = start + r * dilation;
          if (at < 0) window[r] = Quad<Element>::first_of(gather_word(a, batch, channel, at, 1, 0));
        }
      } else {
        load_history<kTaps - 1>(a, batch, channel, start, dilation, window);
      }
    }
  }
  Subsequences subsequences(a, batch, position, end);
  float taps[kChannels][kTaps], bias[kChannels];
  load_channel_taps<Element>(a, channel, taps);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) bias[i] = a.bias_of(channel + i);

  float values[kTaps][kChannels];  // values of the last positions
#pragma unroll
  for (int r = 0; r < kTaps - 1; ++r) {
    if (subsequences.is_foreign(r)) window[r] = Quad<Element>{};
    window[r].unpack_to(values[r]);
  }
  const auto add_tap = [&](int k, int first, float* sums) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) sums[i] = multiply_add(taps[i][k], values[(first + k) % kTaps][i], sums[i]);
  };
  const auto add_taps = [&](int first, float* sums) {
    if (a.taps == kTaps) {
#pragma unroll
      for (int k = 0; k < kTaps; ++k) add_tap(k, first, sums);
    } else {
#pragma unroll
      for (int k = 0; k < kTaps - 1; ++k) {
        if (k < a.taps) add_tap(k, first, sums);  // not a product with zero: the window may hold infinities
      }
    }
  };
  const auto convolve = [&](const auto& own_subsequences) {
#pragma unroll
    for (int c = 0; c < kPositions; c += kChained) {
      if (c >= a.vectors_per_thread) break;
      float sums[kChained * kChannels];
#pragma unroll
      for (int j = 0; j < kChained; ++j) {
        const int at = c + j;
        // Values after the last output's last tap are not used.
        window[at + kTaps - 1].unpack_to(values[(at + kTaps - 1) % kTaps]);
        if (own_subsequences.begins(at)) {
#pragma unroll
          for (int k = 0; k < kTaps - 1; ++k) {
#pragma unroll
            for (int i = 0; i < kChannels; ++i) {
              values[(at + k) % kTaps][i] = k < a.taps - 1 ? 0.0f : values[(at + k) % kTaps][i];
            }
          }
        }
#pragma unroll
        for (int i = 0; i < kChannels; ++i) sums[j * kChannels + i] = bias[i];
        add_taps(at, sums + j * kChannels);
      }
      const auto exists = [&](int j) { return position + c + j < end && !own_subsequences.is_skipped(c + j); };
      if constexpr (Shape::kAhead) {
        post.template apply<kChannels, kChained>(sums, loaded[c / kChained]);
      } else {
        run_chain<Post, kChannels, kChained>(
            a.post, [&](const long long* strides, int j) { return place_of(strides, c + j, exists(j)); }, sums);
      }
#pragma unroll
      for (int i = 0; i < kChained * kChannels; ++i)
        sums[i] = own_subsequences.is_zero(c + i / kChannels) ? 0.0f : sums[i];
      store_slices<kChannels, kChained>(a.output_type(), sums, [&](auto* tag, int j, const float* own) {
        using Out = std::remove_pointer_t<decltype(tag)>;
        const auto* const strides = a.output.strides;
        Out* const to =
            a.output.template as<Out>() + batch * strides[0] + channel + (residue + position * dilation) * strides[2];
        if (exists(j)) store_vector<Out, kChannels>(to + (c + j) * (dilation * strides[2]), own);
      });
    }
  };
  if constexpr (std::is_same_v<Subsequences, OneSubsequence>) {
    convolve(subsequences);
  } else if (subsequences.are_any()) {
    convolve(subsequences);
  } else {
    convolve(OneSubsequence());  // fewer instructions
  }
  subsequences.template finish<Chains>(a, channel);
}

// Without chains: a chain that is not linked runs in the other kernels.
template <class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kFewTapsChannelBlocks<Element>)
    few_taps_channels_kernel(const __grid_constant__ WordsArguments<Element> a) {
  few_taps_channels<NoChains, FewTapsShape<Element>>(a);
}
template <class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kGatedBlocks)
    gated_channels_kernel(const __grid_constant__ WordsArguments<Element> a) {
  few_taps_channels<NoChains, GatedShape<Element>>(a);
}
template <class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, eight_taps_blocks(kDType<Element>))
    eight_taps_channels_kernel(const __grid_constant__ WordsArguments<Element> a) {
  few_taps_channels<NoChains, EightTapsShape<Element>>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::few_taps_channels, Element> {
  static Kernel<WordsArguments<Element>> of(const Conv1dParams&) { return few_taps_channels_kernel<Element>; }
};

template <class Element>
struct Interpreted<DepthwiseKernel::gated_channels, Element> {
  static Kernel<WordsArguments<Element>> of(const Conv1dParams&) { return gated_channels_kernel<Element>; }
};

template <class Element>
struct Interpreted<DepthwiseKernel::eight_taps_channels, Element> {
  static Kernel<WordsArguments<Element>> of(const Conv1dParams&) { return eight_taps_channels_kernel<Element>; }
};

}  // namespace sluice
