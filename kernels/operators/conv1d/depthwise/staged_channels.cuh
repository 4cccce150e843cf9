// Depthwise conv1d, channels-last, for every schedule with a ring.
//
// A stage holds the block's inputs, zeros and history filled in, and its taps:
//   [ (63 stride + (taps - 1) dilation + 1) positions x 8 words | taps x channels ]
#pragma once

#include "kernels/operators/conv1d/depthwise/direct_channels.cuh"
#include "kernels/shared/pipeline/interpreted_pipe.cuh"

namespace sluice {

template <class Chains, class Pipe, class Element>
__device__ __forceinline__ void staged_channels(const StagedArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  extern __shared__ Word shared[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, {a.schedule, a.depth}, /*shares=*/true);
  const int stage_words = a.stage_words + a.tap_bytes / kWordBytes;

  const auto fetch = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const ChannelTile tile = channel_tile<kWidth>(a, index);
    const long long first = tile.position * a.stride - a.padding;
    // Vectors that exist and are aligned are one rectangle; the others are gathered.
    const int positions = a.stage_words / kChannelVectors;
    int begin = 0, end = 0, vectors = 0;
    const Element* const corner = a.input.template as<const Element>() + tile.batch * a.input.strides[0] +
                                  tile.channel + first * a.input.strides[2];
    if (a.input.strides[1] == 1 && a.input.strides[2] % kWidth == 0 && is_word_aligned(corner)) {
      begin = first < 0 ? static_cast<int>(min_of<long long>(positions, -first)) : 0;
      end = static_cast<int>(max_of<long long>(begin, min_of<long long>(positions, a.length - first)));
      vectors = static_cast<int>(min_of<long long>(kChannelVectors, (a.channels - tile.channel) / kWidth));
    }
    if (begin < end && vectors > 0) {
      pipe.copy(WordTile{.to = words + begin * kChannelVectors,
                         .from = reinterpret_cast<const char*>(corner + begin * a.input.strides[2]),
                         .words = vectors,
                         .rows = end - begin,
                         .to_pitch = kChannelVectors,
                         .from_pitch = a.input.strides[2] * static_cast<long long>(sizeof(Element))});
    }
    if (begin > 0 || end < positions || vectors < kChannelVectors) {
      for (int w = pipe.thread(); w < a.stage_words; w += pipe.threads()) {
        const int p = w / kChannelVectors, v = w % kChannelVectors;
        if (begin <= p && p < end && v < vectors) continue;
        words[w] = gather_word(a, tile.batch, tile.channel + v * kWidth, first + p, 1, 0);
      }
    }
    load_taps(a, tile.channel, reinterpret_cast<T*>(words + a.stage_words), pipe.thread(), pipe.threads());
  };

  const auto compute = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const ChannelTile tile = channel_tile<kWidth>(a, index);
    if (!typename Chains::Pre{a.pre}.empty()) {
      const long long first = tile.position * a.stride - a.padding;
      for (int w = threadIdx.x; w < a.stage_words; w += kConv1dThreads) {
        words[w] = apply_pre<typename Chains::Pre>(a, words[w], tile.batch, tile.channel + w % kChannelVectors * kWidth,
                                                   first + w / kChannelVectors, 1, 0);
      }
      pipe.consumer_sync();
    }
    const ChannelVector<Element> v(a, tile);
    if (!v.exists(a)) return;
    const T* const taps = reinterpret_cast<const T*>(words + a.stage_words);
    const Word* const own =
        words + (v.position - tile.position) * a.stride * kChannelVectors + threadIdx.x % kChannelVectors;
    T sums[kPositions * kWidth];
    start_sums(a, v, sums);
    add_products(
        a, taps, v.lane, [&](int j, int k) { return own[(j * a.stride + k * a.dilation) * kChannelVectors]; }, sums);
    finish_sums<typename Chains::Post>(a, v, sums);
  };

  run_ring(pipe, a.depth, blockIdx.x, a.tiles, gridDim.x, fetch, compute);
}

template <class Element>
__global__ void __launch_bounds__(kConv1dThreads + InterpretedPipe::kProducers)
    staged_channels_kernel(const __grid_constant__ StagedArguments<Element> a) {
  staged_channels<ElementwiseChains<Element>, InterpretedPipe>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::staged_channels, Element> {
  static Kernel<StagedArguments<Element>> of(const Conv1dParams&) { return staged_channels_kernel<Element>; }
};

}  // namespace sluice
