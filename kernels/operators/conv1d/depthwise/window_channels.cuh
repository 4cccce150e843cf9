// Depthwise conv1d, channels-last, with stride and dilation 1 and no `pre`: windows of positions in registers.
//
// A block is `lanes` threads across the channels by as many below them as fit, and iterates over later positions as
// often as its plan says. A thread has Width channels, two where pairs of them are aligned in memory, at 16 consecutive
// positions. Taps of the block's channels are in shared memory; inputs come from the L1 cache, once per thread: for
// each four taps it reads four inputs, and has 64 products a channel to sum:
//
//                     channels ->
//   position p        | ww |          w: in registers from earlier taps, n: read now
//      ...            | ww |
//   position p + 15   | nn |
//      ...            | nn |
#pragma once

#include "kernels/operators/conv1d/depthwise/register_ring.cuh"
#include "kernels/shared/common/store.cuh"

namespace sluice {

// Width channels of a position.
template <int Width, class Element>
__device__ __forceinline__ void read_channels(const Element* from, float (&values)[Width]) {
  static_assert(Width <= 2);
  if constexpr (Width == 1) {
    values[0] = convert<float>(*from);
  } else if constexpr (sizeof(Element) == 2) {
    const float2 pair = Pair<Element>::load(*reinterpret_cast<const std::uint32_t*>(from));
    values[0] = pair.x, values[1] = pair.y;
  } else {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    values[0] = pair.x, values[1] = pair.y;
  }
}

// A thread's inputs, its channels' for the outputs from `position` on, one after the other.
template <int Width, class Element>
struct ChannelWindow {
  const Conv1dArguments<Element>& a;
  long long batch, channel, position;
  const Element* from;
  int first, last;  // inputs inside the tensor
  int next = 0;

  __device__ __forceinline__ ChannelWindow(const Conv1dArguments<Element>& arguments, long long batch_index,
                                           long long first_channel, long long first_position)
      : a(arguments), batch(batch_index), channel(first_channel), position(first_position) {
    const long long start = position - a.padding;
    from = a.input.template as<const Element>() + batch * a.input.strides[0] + channel * a.input.strides[1] +
           start * a.input.strides[2];
    const long long count = kWindowPositions + a.taps - 1LL;
    first = static_cast<int>(max_of<long long>(0, min_of(count, -start)));
    last = static_cast<int>(max_of<long long>(first, min_of(count, a.length - start)));
  }
  __device__ __forceinline__ bool is_whole() const { return first == 0 && last == kWindowPositions + a.taps - 1; }

  // Checked: some may be outside the tensor.
  template <bool Checked>
  __device__ __forceinline__ void read(float (&values)[Width]) {
    if (!Checked || (next >= first && next < last)) {
      read_channels(from, values);
    } else {
      float quad[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      if (next < first && a.history.exists()) {
        Quad<Element>::first_of(gather_word(a, batch, channel, position - a.padding + next, 1, 0)).unpack_to(quad);
      }
#pragma unroll
      for (int c = 0; c < Width; ++c) values[c] = quad[c];
    }
    if constexpr (Checked) ++next;
    from += a.input.strides[2];
  }
};

// sums[c][j] += sum_k taps[k][c] * input (j + k): in the order of k.
template <bool Checked, int Width, class Element>
__device__ __forceinline__ void slide_channels(ChannelWindow<Width, Element>& inputs, const float* taps, int tap_pitch,
                                               int count, float (&sums)[Width][kWindowPositions]) {
  constexpr int kRing = kWindowPositions + 4, kSteps = kRing / 4;
  float ring[kRing][Width];
#pragma unroll
  for (int i = 0; i < kWindowPositions - 1; ++i) inputs.template read<Checked>(ring[i]);
  const auto add_tap = [&](int k, int first) {
    float own[Width];
    if constexpr (Width == 2) {
      const float2 pair = *reinterpret_cast<const float2*>(taps + k * tap_pitch);
      own[0] = pair.x, own[1] = pair.y;
    } else {
      own[0] = taps[k * tap_pitch];
    }
#pragma unroll
    for (int j = 0; j < kWindowPositions; ++j) {
#pragma unroll
      for (int c = 0; c < Width; ++c) sums[c][j] = multiply_add(own[c], ring[(first + j) % kRing][c], sums[c][j]);
    }
  };
  int k = 0;
#pragma unroll 1
  for (; k + kRing <= count; k += kRing) {
    for_unrolled<kSteps>([&](auto step) {
      constexpr int kFirst = 4 * decltype(step)::value;
#pragma unroll
      for (int i = 0; i < 4; ++i) inputs.template read<Checked>(ring[(kFirst + i + kWindowPositions - 1) % kRing]);
#pragma unroll
      for (int i = 0; i < 4; ++i) add_tap(k + kFirst + i, kFirst + i);
    });
  }
  // The rest is less than once around. Not products with zero: the window may hold infinities.
  for_unrolled<kSteps>([&](auto step) {
    constexpr int kFirst = 4 * decltype(step)::value;
    const int left = count - k - kFirst;
    if (left <= 0) return;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) inputs.template read<Checked>(ring[(kFirst + i + kWindowPositions - 1) % kRing]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) add_tap(k + kFirst + i, kFirst + i);
    }
  });
}

// Taps of the block's channels, taps[k][channel], rows of `pitch`. Adjacent threads read adjacent taps.
template <class Element>
__device__ __forceinline__ void load_window_taps(const Conv1dArguments<Element>& a, long long channel, int channels,
                                                 int pitch, float* taps) {
  const int rows = static_cast<int>(blockDim.x) / a.taps, rest = static_cast<int>(blockDim.x) - rows * a.taps;
  int c = static_cast<int>(threadIdx.x) / a.taps, k = static_cast<int>(threadIdx.x) - c * a.taps;
  const int count = static_cast<int>(min_of<long long>(channels, a.channels - channel));
  while (c < count) {
    constexpr int kAtOnce = 8;
    long long indices[kAtOnce];
    int places[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      indices[i] = c < count ? a.tap_index(channel + c, k) : kNoElement;
      places[i] = k * pitch + c;
      c += rows, k += rest;
      if (k >= a.taps) ++c, k -= a.taps;
    }
    float values[kAtOnce];
    a.load_taps([&](int i) { return indices[i]; }, values);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (indices[i] != kNoElement) taps[places[i]] = values[i];
    }
  }
}

// The results of a block's positions, all channels of each, are contiguous: collected in shared memory with the
// output's misalignment, so that they are stored as words. For few channels, whose threads would store partial sectors.
template <class Out>
struct CollectedSpan {
  static constexpr int kWidth = kWordElements<Out>;
  Out* to;      // the span in the output
  Out* staged;  // the span in shared memory
  int lead;     // elements of the first word before it

  __device__ __forceinline__ CollectedSpan(Out* output, Word* words)
      : to(output), lead(static_cast<int>(reinterpret_cast<std::uintptr_t>(output) / sizeof(Out) % kWidth)) {
    staged = reinterpret_cast<Out*>(words) + lead;
  }
  __device__ __forceinline__ void store(int count) const {
    const int end = (lead + count) / kWidth * kWidth - lead, begin = lead == 0 ? 0 : min_of(count, kWidth - lead);
    for (int i = begin + static_cast<int>(threadIdx.x) * kWidth; i < end; i += static_cast<int>(blockDim.x) * kWidth) {
      store_global_word(to + i, load_word(staged + i));
    }
    const int rest = max_of(begin, end);
    if (static_cast<int>(threadIdx.x) < begin) to[threadIdx.x] = staged[threadIdx.x];
    if (static_cast<int>(threadIdx.x) < count - rest) to[rest + threadIdx.x] = staged[rest + threadIdx.x];
  }
};

template <class Chains, int Width, class Element>
__device__ __forceinline__ void window_channels(const WindowsArguments<Element>& a) {
  constexpr int kChained = kWindowChained, kPositions = kWindowPositions;
  extern __shared__ Word shared[];
  float* const taps = reinterpret_cast<float*>(shared);
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lane = static_cast<int>(threadIdx.x) - below * a.lanes, channels = a.lanes * Width;
  const int pitch = channels + Width;  // so that adjacent taps of a channel are in different banks
  const unsigned upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const unsigned batch = a.by_along.quotient_of_31_bits(upper);
  const long long first = (blockIdx.x - upper * a.by_across.divisor) * channels, channel = first + lane * Width;
  const unsigned tile = upper - batch * static_cast<unsigned>(a.by_along.divisor);
  load_window_taps(a, first, channels, pitch, taps);
  __syncthreads();
  if (channel >= a.channels) return;  // collecting needs as many threads as channels
  Word* const staged = shared + a.tap_bytes / kWordBytes;

  // An iteration's windows take all registers: values that can be recomputed are not kept.
  const int step = a.rows_per_block * kPositions;
  const auto first_position = [&](int iteration) {
    return (static_cast<long long>(tile) * a.iterations + iteration) * step;
  };
#pragma unroll 1
  for (int iteration = 0; iteration < a.iterations; ++iteration) {
    if (first_position(iteration) >= a.output_length) return;
    const long long position = first_position(iteration) + below * kPositions;
    if (!a.collects && position >= a.output_length) return;
    float sums[Width][kPositions];
#pragma unroll
    for (int c = 0; c < Width; ++c) {
      const float bias = a.bias_of(channel + c);
#pragma unroll
      for (int j = 0; j < kPositions; ++j) sums[c][j] = bias;
    }
    ChannelWindow<Width, Element> inputs(a, batch, channel, position);
    if (inputs.is_whole()) {
      slide_channels<false>(inputs, taps + lane * Width, pitch, a.taps, sums);
    } else {
      slide_channels<true>(inputs, taps + lane * Width, pitch, a.taps, sums);
    }
    int again = iteration;
    asm("" : "+r"(again));  // or the compiler would keep the values computed above
    const long long block_position = first_position(again);
    const int left = static_cast<int>(max_of(0LL, min_of<long long>(kPositions, a.output_length - position)));
#pragma unroll
    for (int chained = 0; chained < kPositions; chained += kChained) {
      // For the chain a vector is positions of one channel, and channels are slices.
      float values[Width * kChained];
#pragma unroll
      for (int i = 0; i < Width * kChained; ++i) values[i] = sums[i / kChained][chained + i % kChained];
      const auto place_of = [&](const long long* strides, int c) {
        const long long offset = batch * strides[0] + (channel + c) * strides[1] + (position + chained) * strides[2];
        return Place{
            .offset = offset, .stride = strides[2], .first = 0, .last = max_of(0, min_of(kChained, left - chained))};
      };
      run_chain<typename Chains::Post, kChained, Width>(a.post, place_of, values);
      with_element_type(a.output_type(), [&](auto* tag) {
        using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
        Out* const batch_output = a.output.template as<Out>() + batch * a.output.strides[0];
        Out* to = batch_output + channel + (position + chained) * a.output.strides[2];
        if (a.collects) {
          to = CollectedSpan<Out>(batch_output + block_position * a.channels, staged).staged + channel +
               (below * kPositions + chained) * a.channels;
        }
#pragma unroll
        for (int j = 0; j < kChained; ++j) {
          if (chained + j >= left) continue;
          if constexpr (Width == 2) {
            const float own[2] = {values[j], values[kChained + j]};
            store_vector<Out, 2>(to + j * a.output.strides[2], own);
          } else {
            to[j * a.output.strides[2]] = convert<Out>(values[j]);
          }
        }
      });
    }
    if (!a.collects) continue;
    __syncthreads();
    with_element_type(a.output_type(), [&](auto* tag) {
      using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
      Out* const to = a.output.template as<Out>() + batch * a.output.strides[0] + block_position * a.channels;
      const long long positions = min_of<long long>(step, a.output_length - block_position);
      CollectedSpan<Out>(to, staged).store(static_cast<int>(positions * a.channels));
    });
    __syncthreads();
  }
}

// Without chains: a chain that is not linked runs in the other kernels.
template <int Width, class Element>
__global__ void __launch_bounds__(kWindowThreads, window_channel_blocks(Width))
    window_channels_kernel(const __grid_constant__ WindowsArguments<Element> a) {
  window_channels<NoChains, Width>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::window_channels, Element> {
  static Kernel<WindowsArguments<Element>> of(const Conv1dParams&) { return window_channels_kernel<1, Element>; }
};

template <class Element>
struct Interpreted<DepthwiseKernel::window_channels_pairs, Element> {
  static Kernel<WindowsArguments<Element>> of(const Conv1dParams&) { return window_channels_kernel<2, Element>; }
};

}  // namespace sluice
