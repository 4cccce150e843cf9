// Depthwise conv1d, channels-first, for every schedule with a ring.
//
// A tile is the outputs of one block, all of one row, and a stage holds its inputs, zeros and history filled in, then
// the row's taps:  [ words of input with halo | taps ]
#pragma once

#include "kernels/operators/conv1d/depthwise/direct_rows.cuh"
#include "kernels/shared/pipeline/copy.cuh"
#include "kernels/shared/pipeline/interpreted_pipe.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

// A row in a stage of the ring: word `index` of the row is word `index - first_word` of the stage.
template <class Element>
struct SharedRow {
  static constexpr bool kIsStaged = true;
  const Word* words;
  long long first_word;
  int lead;

  __device__ Word word(long long index) const { return words[index - first_word]; }
  template <int Count>
  __device__ void load(long long index, Word (&loaded)[Count]) const {
#pragma unroll
    for (int w = 0; w < Count; ++w) loaded[w] = word(index + w);
  }
  __device__ const Element* at(long long position) const {
    return reinterpret_cast<const Element*>(words) + (position + lead - first_word * kWordElements<Element>);
  }
};

template <class Chains, class Pipe, class Element>
__device__ __forceinline__ void staged_rows(const StagedArguments<Element>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kOutputs = kRowOutputs<Element>;
  extern __shared__ Word shared[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, {a.schedule, a.depth}, /*shares=*/true);
  const int stage_words = a.stage_words + a.tap_bytes / kWordBytes;
  const long long tiles_per_row = a.by_across.divisor;

  // Positions of a tile's inputs: from the first output's first tap to the last output's last tap.
  const auto locate = [&](const RowSpan& span, const GlobalRow<Element, void>& row, long long& first_word, int& count) {
    const long long begin = span.begin * a.stride - a.padding;
    first_word = floor_div(begin + row.lead, kWidth);
    const long long outputs = min_of<long long>(kConv1dThreads * kOutputs, a.output_length - span.begin);
    const long long end = begin + (outputs - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
    count = static_cast<int>(floor_div(end - 1 + row.lead, kWidth) - first_word + 1);
  };

  const auto fetch = [&](long long tile, int stage) {
    Word* const words = shared + stage * stage_words;
    const long long index = a.by_across.quotient(tile);
    RowSpan span = row_span<kOutputs, kWidth>(a, index, (tile - index * tiles_per_row) * kConv1dThreads);
    GlobalRow<Element, void> row(a, span);
    long long first_word;
    int count;
    locate(span, row, first_word, count);
    // Whole words of the row are one copy; words at its edges, and all of a row that is not contiguous, are gathered.
    const long long begin = first_word * kWidth - row.lead;
    int first = 0, last = 0;
    if (a.input.strides[2] == 1) {
      first = begin < 0 ? static_cast<int>(min_of<long long>(count, ceil_div<long long>(-begin, kWidth))) : 0;
      last = static_cast<int>(max_of<long long>(first, min_of<long long>(count, floor_div(a.length - begin, kWidth))));
    }
    if (first < last) {
      const char* const from = reinterpret_cast<const char*>(row.row + begin + first * kWidth);
      pipe.copy(WordTile{.to = words + first, .from = from, .words = last - first});
    }
    for (int i = pipe.thread(); i < count - (last - first); i += pipe.threads()) {
      const int w = i < first ? i : i + (last - first);
      const long long position = begin + w * kWidth;
      if (position >= a.length || (position + kWidth <= 0 && !a.history.exists())) {
        copy_zeros(pipe, words + w, a.input.data);
        continue;
      }
      if (a.input.strides[2] == 1 && (position >= 0 || !a.history.exists())) {
        constexpr int kUnit = sizeof(Element);
        const int begin = position < 0 ? static_cast<int>(-position) : 0;
        const int end = static_cast<int>(min_of<long long>(kWidth, a.length - position));
        const char* const from = reinterpret_cast<const char*>(row.row + position);
        if (copy_partial<kUnit>(pipe, words + w, from, begin * kUnit, end * kUnit)) continue;
      }
      words[w] = gather_word(a, row.batch, row.channel, position, 0, 1);
    }
    T* const taps = reinterpret_cast<T*>(words + a.stage_words);
    for (int k = pipe.thread(); k < a.taps; k += pipe.threads()) taps[k] = a.tap(span.channel, k);
  };

  const auto compute = [&](long long tile, int stage) {
    Word* const words = shared + stage * stage_words;
    const long long index = a.by_across.quotient(tile), vector = (tile - index * tiles_per_row) * kConv1dThreads;
    RowSpan span = row_span<kOutputs, kWidth>(a, index, vector);
    GlobalRow<Element, void> row(a, span);
    long long first_word;
    int count;
    locate(span, row, first_word, count);
    if (!typename Chains::Pre{a.pre}.empty()) {
      for (int w = threadIdx.x; w < count; w += kConv1dThreads) {
        words[w] = apply_pre<typename Chains::Pre>(a, words[w], row.batch, row.channel,
                                                   (first_word + w) * kWidth - row.lead, 0, 1);
      }
      pipe.consumer_sync();
    }
    span = row_span<kOutputs, kWidth>(a, index, vector + threadIdx.x);
    if (span.last <= span.first) return;
    const T* const taps = reinterpret_cast<const T*>(words + a.stage_words);
    convolve_row<Element, kOutputs, typename Chains::Post>(  // a tile's taps are in shared memory, after its input
        a, span, SharedRow<Element>{words, first_word, row.lead}, [&](int k) { return taps[k]; });
  };

  run_ring(pipe, a.depth, blockIdx.x, a.tiles, gridDim.x, fetch, compute);
}

template <class Element>
__global__ void __launch_bounds__(kConv1dThreads + InterpretedPipe::kProducers)
    staged_rows_kernel(const __grid_constant__ StagedArguments<Element> a) {
  staged_rows<ElementwiseChains<Element>, InterpretedPipe>(a);
}

template <class Element>
struct Interpreted<DepthwiseKernel::staged_rows, Element> {
  static Kernel<StagedArguments<Element>> of(const Conv1dParams&) { return staged_rows_kernel<Element>; }
};

}  // namespace sluice
