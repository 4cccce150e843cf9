// Depthwise conv1d with up to four taps, channels last: what a device copy does, and four products an output.
//
// A block is `lanes` threads along the channels by as many below them as fill it. A thread has four channels, whose
// taps and whose window of positions are in its registers, at up to kPositions consecutive positions:
//
//                     channels ->
//   position t - 3   | vvvv |                before the first output
//            ...     | vvvv |
//   position t       | vvvv |  -> output t
//            ...     | vvvv |  -> ...        each vector is loaded once a thread, and all before the first sum
#pragma once

#include "kernels/conv1d/depthwise/few_taps.cuh"

namespace sluice {

// The taps of a thread's channels. A dense weight of the input's dtype is read as it lies, in as many quads as there
// are taps.
template <class Element>
__device__ __forceinline__ void load_channel_taps(const Conv1dArguments<Element>& a, long long channel,
                                                  float (&taps)[kFewTapsChannels][kFewTaps]) {
  if (!a.dense_weight) return load_few_taps(a, channel, taps);
  const Element* const from = a.weight.template as<const Element>() + channel * a.taps;
  switch (a.taps) {
    case 1: load_quads_of_taps<1>(from, taps); break;
    case 2: load_quads_of_taps<2>(from, taps); break;
    case 3: load_quads_of_taps<3>(from, taps); break;
    default: load_quads_of_taps<4>(from, taps); break;
  }
}

template <class Chains, class Element>
__device__ __forceinline__ void few_taps_channels(const Conv1dArguments<Element>& a) {
  constexpr int kPositions = kFewTapsPositions<Element>, kWindow = kPositions + kFewTaps - 1;
  constexpr int kChannels = kFewTapsChannels, kChained = kFewTapsChained / kChannels;
  const int below = static_cast<int>(a.by_lanes.quotient_of_31_bits(threadIdx.x));
  const int lane = static_cast<int>(threadIdx.x) - below * a.lanes;
  const int upper = static_cast<int>(a.by_across.quotient_of_31_bits(blockIdx.x));
  const int batch = static_cast<int>(a.by_along.quotient_of_31_bits(upper));
  const int channel =
      ((static_cast<int>(blockIdx.x) - upper * static_cast<int>(a.by_across.divisor)) * a.lanes + lane) * kChannels;
  const int position =
      ((upper - batch * static_cast<int>(a.by_along.divisor)) * a.rows_per_block + below) * a.vectors_per_thread;
  if (channel >= a.channels || position >= a.output_length) return;

  const int length = static_cast<int>(a.length), padding = static_cast<int>(a.padding), start = position - padding;
  const Element* const from =
      a.input.template as<const Element>() + batch * a.input.strides[0] + channel + start * a.input.strides[2];
  Quad<Element> window[kWindow];
  const int end = min_of(static_cast<int>(a.output_length), position + a.vectors_per_thread);
  const int last = min_of(length, start + a.vectors_per_thread + a.taps - 1);
#pragma unroll
  for (int r = 0; r < kWindow; ++r) {
    window[r] = Quad<Element>{};
    if (start + r >= 0 && start + r < last) window[r] = Quad<Element>::load(from + r * a.input.strides[2]);
  }
  if (a.history.exists() && start < 0) {
#pragma unroll
    for (int r = 0; r < kFewTaps - 1; ++r) {
      if (start + r < 0) window[r] = Quad<Element>::first_of(gather_word(a, batch, channel, start + r, 1, 0));
    }
  }
  float taps[kChannels][kFewTaps], bias[kChannels];
  load_channel_taps(a, channel, taps);
#pragma unroll
  for (int i = 0; i < kChannels; ++i) bias[i] = a.bias_of(channel + i);

  float values[kFewTaps][kChannels];  // of the last four positions
#pragma unroll
  for (int r = 0; r < kFewTaps - 1; ++r) window[r].unpack_to(values[r]);
  const auto add_tap = [&](int k, int first, float* sums) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) sums[i] = multiply_add(taps[i][k], values[(first + k) % kFewTaps][i], sums[i]);
  };
  const auto add_taps = [&](int first, float* sums) {
    if (a.taps == kFewTaps) {
#pragma unroll
      for (int k = 0; k < kFewTaps; ++k) add_tap(k, first, sums);
    } else {
#pragma unroll
      for (int k = 0; k < kFewTaps - 1; ++k) {
        if (k < a.taps) add_tap(k, first, sums);  // not a product with zero: the window may hold infinities
      }
    }
  };
#pragma unroll
  for (int c = 0; c < kPositions; c += kChained) {
    if (c >= a.vectors_per_thread) break;
    float sums[kChained * kChannels];
#pragma unroll
    for (int j = 0; j < kChained; ++j) {
      // Beyond the last output's last tap nothing is used.
      window[c + j + kFewTaps - 1].unpack_to(values[(c + j + kFewTaps - 1) % kFewTaps]);
#pragma unroll
      for (int i = 0; i < kChannels; ++i) sums[j * kChannels + i] = bias[i];
      add_taps(c + j, sums + j * kChannels);
    }
    const auto exists = [&](int j) { return position + c + j < end; };
    const auto place_of = [&](const long long* strides, int j) {
      const long long offset = batch * strides[0] + channel * strides[1] + (position + c + j) * strides[2];
      return Place{.offset = offset, .stride = strides[1], .first = 0, .last = exists(j) ? kChannels : 0};
    };
    run_chain<typename Chains::Post, kChannels, kChained>(a.post, place_of, sums);
    store_slices<kChannels, kChained>(a.output_type(), sums, [&](auto* tag, int j, const float* own) {
      using Out = std::remove_pointer_t<decltype(tag)>;
      Out* const to =
          a.output.template as<Out>() + batch * a.output.strides[0] + channel + position * a.output.strides[2];
      if (exists(j)) store_vector<Out, kChannels>(to + (c + j) * a.output.strides[2], own);
    });
  }
}

// Without a chain: one that is not linked runs in the other kernels.
template <class Element>
__global__ void __launch_bounds__(kFewTapsChannelThreads, kFewTapsChannelBlocks<Element>)
    few_taps_channels_kernel(const __grid_constant__ Conv1dArguments<Element> a) {
  few_taps_channels<NoChains>(a);
}

}  // namespace sluice
