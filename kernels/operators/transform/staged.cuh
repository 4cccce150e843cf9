// transform's kernel for every schedule with a ring. A tile is Vectors vectors a thread, all of one row.
//
//   shared memory   [ stage 0: words of a tile, and one more ] [ stage 1 ] ... [ stage depth - 1 ]
#pragma once

#include "kernels/operators/transform/arguments.cuh"
#include "kernels/shared/pipeline/copy.cuh"
#include "kernels/shared/pipeline/interpreted_pipe.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

template <class Chain, class Pipe, class Element, Walk walk>
__device__ __forceinline__ void staged_transform(const TransformArguments<Element, walk>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kVectors = kTransformVectors<Element>;
  constexpr int kTileVectors = kVectors * kTransformThreads, kStageWords = kTileVectors + 1;
  extern __shared__ Word ring[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, {a.schedule, a.depth}, a.shares);

  const auto fetch = [&](long long tile, int stage) {
    Word* const words = ring + stage * kStageWords;
    const long long row = a.kFlat ? 0 : a.tiles_divisor.quotient(tile);
    const long long vector = (tile - row * a.tiles_per_row) * kTileVectors;
    const Element* const from = a.input + a.row_offset(row, a.input_strides);
    const int misalignment = a.template misalignment<kWidth>(a.row_offset(row, a.output_strides));
    const long long begin = vector * kWidth - misalignment;
    if (a.input_stride() == 1) {
      const WordSpan<Element> word_span(from + begin, from, from + a.sizes[0]);
      const long long left = a.sizes[0] - begin + word_span.shift / static_cast<int>(sizeof(Element));
      const int count =
          static_cast<int>(min_of<long long>(kTileVectors + (word_span.shift != 0), ceil_div<long long>(left, kWidth)));
      copy_span(pipe, words, word_span, count);
      return;
    }
    for (int v = pipe.thread(); v < kTileVectors; v += pipe.threads()) {
      const VectorSpan span = span_of<kWidth>(vector + v, misalignment, a.sizes[0]);
      Element* const to = reinterpret_cast<Element*>(words + v);
      for (int i = span.first; i < span.last; ++i) to[i] = from[(span.begin + i) * a.input_stride()];
    }
  };

  const auto compute = [&](long long tile, int stage) {
    const Word* const words = ring + stage * kStageWords;
    const long long row = a.kFlat ? 0 : a.tiles_divisor.quotient(tile);
    const long long vector = (tile - row * a.tiles_per_row) * kTileVectors;
    const int misalignment = a.template misalignment<kWidth>(a.row_offset(row, a.output_strides));
    VectorSpan spans[kVectors];
    T values[kVectors * kWidth];
#pragma unroll
    for (int g = 0; g < kVectors; ++g)
      spans[g] = span_of<kWidth>(vector + g * kTransformThreads + threadIdx.x, misalignment, a.sizes[0]);
    const Element* const begin = a.input + a.row_offset(row, a.input_strides) + vector * kWidth - misalignment;
    const int shift =
        a.input_stride() == 1 ? static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) & (kWordBytes - 1)) : 0;
    const auto row_of = [row](int) { return row; };
    const Chain chain{a.chain};
    const auto loads = load_operands<kWidth, kVectors>(chain, a.chain, places_of(a, spans, row_of));
#pragma unroll
    for (int g = 0; g < kVectors; ++g) {
      const int v = g * kTransformThreads + threadIdx.x;
      const Word low = words[v];
      unpack<Element>(shift == 0 ? low : shift_words(low, words[v + 1], shift), values + g * kWidth);
    }
    finish_vectors<kWidth>(a, chain, loads, spans, row_of, values);
  };

  run_ring(pipe, a.depth, blockIdx.x, a.rows * a.tiles_per_row, gridDim.x, fetch, compute);
}

template <class Element>
__global__ void __launch_bounds__(kTransformThreads + InterpretedPipe::kProducers,
                                  transform_resident_blocks(InterpretedPipe::kProducers))
    staged_transform_kernel(const __grid_constant__ TransformArguments<Element, Walk::strided> a) {
  staged_transform<ElementwiseChain<Compute<Element>, kMaxDims>, InterpretedPipe>(a);
}

// A flat tensor is interpreted as strided, with one row: this halves the kernels.
template <class Element>
struct Interpreted<TransformKernel::staged_flat, Element> {
  static Kernel<TransformArguments<Element, Walk::flat>> of(const TransformParams&) { return nullptr; }
};
template <class Element>
struct Interpreted<TransformKernel::staged_strided, Element> {
  static Kernel<TransformArguments<Element, Walk::strided>> of(const TransformParams&) {
    return staged_transform_kernel<Element>;
  }
};

}  // namespace sluice
