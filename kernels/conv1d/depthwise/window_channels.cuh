// Depthwise conv1d, channels last, with stride and dilation 1 and no `pre`: windows of positions in registers.
//
// A block is `lanes` threads along the channels by as many below them as fill it, and comes back that many positions
// later as often as its plan says. A thread has Width channels, two where pairs of them are aligned in memory, at 16
// consecutive positions. Taps of the block's channels are in shared memory, inputs come from the L1 cache, each once a
// thread; for each four taps it reads four inputs, and has 64 products a channel to sum:
//
//                     channels ->
//   position p        | ww |          w: in registers from the taps before, n: read now
//      ...            | ww |
//   position p + 15   | nn |
//      ...            | nn |
#pragma once

#include "kernels/common/store.cuh"
#include "kernels/conv1d/depthwise/window_turns.cuh"

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

// The inputs of a thread, its channels' for the outputs from `position` on, one after the other.
template <int Width, class Element>
struct ChannelWindow {
  const Conv1dArguments<Element>& a;
  long long batch, channel, position;
  const Element* from;
  int first, last;  // the inputs of the tensor
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

  // Checked: some of them may not be there.
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
  constexpr int kRing = kWindowPositions + 4, kTurns = kRing / 4;
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
    for_turns<kTurns>([&](auto turn) {
      constexpr int kFirst = 4 * decltype(turn)::value;
#pragma unroll
      for (int i = 0; i < 4; ++i) inputs.template read<Checked>(ring[(kFirst + i + kWindowPositions - 1) % kRing]);
#pragma unroll
      for (int i = 0; i < 4; ++i) add_tap(k + kFirst + i, kFirst + i);
    });
  }
  // What is left is less than once around. Not products with zero: the window may hold infinities.
  for_turns<kTurns>([&](auto turn) {
    constexpr int kFirst = 4 * decltype(turn)::value;
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

// Taps of the block's channels, taps[k][channel], rows of `pitch`. Neighbouring threads read neighbouring taps.
template <class Element>
__device__ __forceinline__ void load_window_taps(const Conv1dArguments<Element>& a, long long channel, int channels,
                                                 int pitch, float* taps) {
  const int rows = static_cast<int>(blockDim.x) / a.taps, rest = static_cast<int>(blockDim.x) - rows * a.taps;
  int c = static_cast<int>(threadIdx.x) / a.taps, k = static_cast<int>(threadIdx.x) - c * a.taps;
  while (c < channels && channel + c < a.channels) {
    taps[k * pitch + c] = a.tap(channel + c, k);
    c += rows, k += rest;
    if (k >= a.taps) ++c, k -= a.taps;
  }
}

// Results of a block's positions, all channels of each, which are one run of memory: collected in shared memory as far
// behind a word as they are in the output, so that they are stored as words. For few channels, whose threads would
// store parts of sectors.
template <class Out>
struct CollectedRun {
  static constexpr int kWidth = kWordElements<Out>;
  Out* to;      // in the output
  Out* staged;  // in shared memory
  int lead;     // elements of the first word before it

  __device__ __forceinline__ CollectedRun(Out* output, Word* words)
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
__device__ __forceinline__ void window_channels(const Conv1dArguments<Element>& a) {
  constexpr int kPart = kWindowChained, kPositions = kWindowPositions;
  extern __shared__ Word shared[];
  float* const taps = reinterpret_cast<float*>(shared);
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lane = static_cast<int>(threadIdx.x) - below * a.lanes, channels = a.lanes * Width;
  const int pitch = channels + Width;  // so that neighbouring taps of a channel are in different banks
  const unsigned upper = a.by_across.quotient_of_31_bits(blockIdx.x);
  const unsigned batch = a.by_along.quotient_of_31_bits(upper);
  const long long first = (blockIdx.x - upper * a.by_across.divisor) * channels, channel = first + lane * Width;
  const unsigned tile = upper - batch * static_cast<unsigned>(a.by_along.divisor);
  load_window_taps(a, first, channels, pitch, taps);
  __syncthreads();
  if (channel >= a.channels) return;  // where results are collected, threads are as many as there are channels
  Word* const staged = shared + a.tap_bytes / kWordBytes;

  // A turn's windows take all registers: what can be computed again is not kept beside them.
  const int step = a.rows_per_block * kPositions;
  const auto first_position = [&](int turn) {
    return (static_cast<long long>(tile) * a.vectors_per_thread + turn) * step;
  };
#pragma unroll 1
  for (int turn = 0; turn < a.vectors_per_thread; ++turn) {
    if (first_position(turn) >= a.output_length) return;
    const long long position = first_position(turn) + below * kPositions;
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
    int again = turn;
    asm("" : "+r"(again));  // or it would be known that this is what was computed above, and kept
    const long long block_position = first_position(again);
    const int left = static_cast<int>(max_of(0LL, min_of<long long>(kPositions, a.output_length - position)));
#pragma unroll
    for (int part = 0; part < kPositions; part += kPart) {
      // For the chain a vector is positions of one channel, as many channels as there are slices.
      float values[Width * kPart];
#pragma unroll
      for (int i = 0; i < Width * kPart; ++i) values[i] = sums[i / kPart][part + i % kPart];
      const auto place_of = [&](const long long* strides, int c) {
        const long long offset = batch * strides[0] + (channel + c) * strides[1] + (position + part) * strides[2];
        return Place{.offset = offset, .stride = strides[2], .first = 0, .last = max_of(0, min_of(kPart, left - part))};
      };
      run_chain<typename Chains::Post, kPart, Width>(a.post, place_of, values);
      with_element_type(a.output_type(), [&](auto* tag) {
        using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
        Out* const batch_output = a.output.template as<Out>() + batch * a.output.strides[0];
        Out* to = batch_output + channel + (position + part) * a.output.strides[2];
        if (a.collects) {
          to = CollectedRun<Out>(batch_output + block_position * a.channels, staged).staged + channel +
               (below * kPositions + part) * a.channels;
        }
#pragma unroll
        for (int j = 0; j < kPart; ++j) {
          if (part + j >= left) continue;
          if constexpr (Width == 2) {
            const float own[2] = {values[j], values[kPart + j]};
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
      CollectedRun<Out>(to, staged).store(static_cast<int>(positions * a.channels));
    });
    __syncthreads();
  }
}

// Without a chain: one that is not linked runs in the other kernels.
template <int Width, class Element>
__global__ void __launch_bounds__(kWindowThreads, window_channel_blocks(Width))
    window_channels_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  window_channels<NoChains, Width>(a);
}

}  // namespace sluice
