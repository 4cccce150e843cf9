// transform's `direct` kernel: vectors through registers.
#pragma once

#include "kernels/operators/transform/arguments.cuh"
#include "kernels/shared/common/edges.cuh"
#include "kernels/shared/pipeline/copy.cuh"

namespace sluice {

// A row as a block of the flat or the rows walk sees it.
template <class Element>
struct RowView {
  const char* base;  // the input's aligned word that holds vector 0's first byte
  const Element* row;
  long long size;
  int misalignment;  // misalignment of the output, in elements
  int shift;         // bytes of the input's first word before vector 0
  // The vectors between are whole, and their inputs' words are inside the tensor, if not inside the row.
  long long first_whole, last_whole;

  template <Walk walk>
  __device__ RowView(const TransformArguments<Element, walk>& a, long long index) : size(a.sizes[0]) {
    constexpr int kWidth = kWordElements<Element>;
    const long long offset = a.row_offset(index, a.input_strides);
    row = a.input + offset;
    if (a.kFlat || a.rows_equally_aligned) {
      misalignment = a.misalignment_of_all;
      shift = a.shift;
    } else {
      misalignment = a.template misalignment<kWidth>(a.row_offset(index, a.output_strides));
      shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(row - misalignment) % kWordBytes);
    }
    if constexpr (walk == Walk::flat) {
      first_whole = a.first_whole;
      last_whole = a.last_whole;
    } else {
      const bool starts = offset<kWidth, ends = offset + size + kWidth> a.input_extent;
      first_whole = misalignment != 0 || (shift != 0 && starts);
      last_whole = (size + misalignment) / kWidth - (shift != 0 && ends);
    }
    base = reinterpret_cast<const char*>(row - misalignment) - shift;
  }
};

// Whole vectors. If the input straddles words both are loaded: the second one comes from the L1 cache, which is cheaper
// than four shuffles.
template <class Element, int Vectors>
__device__ __forceinline__ void load_whole(const RowView<Element>& view, long long first, int threads,
                                           Word (&words)[Vectors]) {
  const char* const from = view.base + first * kWordBytes;
#pragma unroll
  for (int g = 0; g < Vectors; ++g) words[g] = load_word(from + g * (threads * kWordBytes));
  if (view.shift == 0) return;
#pragma unroll
  for (int g = 0; g < Vectors; ++g)
    words[g] = shift_words(words[g], load_word(from + (g * threads + 1) * kWordBytes), view.shift);
}

// A vector at the edge of a row or of the tensor: its elements one by one.
template <class Element>
__device__ __forceinline__ Word load_partial(const RowView<Element>& view, const VectorSpan& span) {
  return gather_elements<Element>([&](int i) {
    return span.first <= i && i < span.last ? view.row[span.begin + i] : convert<Element>(Compute<Element>(0));
  });
}

// The vector's input if neither rows nor adjacent vectors are long: one word if aligned, two if it straddles words,
// else single elements.
template <class Element, class T>
__device__ __forceinline__ void load_vector(const TransformArguments<Element, Walk::strided>& a, long long row_index,
                                            const VectorSpan& span, T* values) {
  constexpr int kWidth = kWordElements<Element>;
  const Element* const row = a.input + a.row_offset(row_index, a.input_strides);
  const long long stride = a.input_stride();
  if (stride == 1 && span.first == 0 && span.last == kWidth) {
    const WordSpan<Element> word_span(row + span.begin, row, row + a.sizes[0]);
    if (word_span.shift == 0) {
      unpack<Element>(load_word(word_span.base), values);
      return;
    }
    if (word_span.is_whole(0) && word_span.is_whole(1)) {
      unpack<Element>(shift_words(load_word(word_span.word(0)), load_word(word_span.word(1)), word_span.shift), values);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values[i] = span.first <= i && i < span.last ? convert<T>(row[(span.begin + i) * stride]) : T(0);
  }
}

// A tile of a row: vectors `block` + thread, then the next `threads` vectors.
template <class Chain, int Vectors, class Element, Walk walk>
__device__ __forceinline__ void transform_tile(const TransformArguments<Element, walk>& a, const RowView<Element>& view,
                                               long long row, long long block) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  const int threads = a.kFlat ? kTransformThreads : blockDim.x;
  const long long first = block + threadIdx.x;
  VectorSpan spans[Vectors];
  Word words[Vectors];
  if (first >= view.first_whole && first + (Vectors - 1) * threads < view.last_whole) {
#pragma unroll
    for (int g = 0; g < Vectors; ++g) {
      spans[g] = {(first + g * threads) * kWidth - view.misalignment, 0, kWidth};
    }
    load_whole(view, first, threads, words);
  } else {
    if (first * kWidth >= view.size + view.misalignment) return;  // past the row's end
#pragma unroll
    for (int g = 0; g < Vectors; ++g) {
      const long long vector = first + g * threads;
      spans[g] = span_of<kWidth>(vector, view.misalignment, view.size);
      words[g] = load_partial(view, spans[g]);
    }
  }
  const auto row_of = [row](int) { return row; };
  const Chain chain{a.chain};
  const auto loads = load_operands<kWidth, Vectors>(chain, a.chain, places_of(a, spans, row_of));
  T values[Vectors * kWidth];
#pragma unroll
  for (int g = 0; g < Vectors; ++g) unpack<Element>(words[g], values + g * kWidth);
  finish_vectors<kWidth>(a, chain, loads, spans, row_of, values);
}

// Flat and rows: a block is a tile of one row.
template <class Chain, int Vectors, class Element, Walk walk>
__device__ __forceinline__ void transform_rows(const TransformArguments<Element, walk>& a) {
  const std::uint32_t row = a.kFlat ? 0 : a.tiles_divisor.quotient_of_31_bits(blockIdx.x);
  const std::uint32_t tile =
      a.kFlat ? blockIdx.x : blockIdx.x - row * static_cast<std::uint32_t>(a.tiles_divisor.divisor);
  const RowView<Element> view(a, row);
  const int threads = a.kFlat ? kTransformThreads : blockDim.x;
  transform_tile<Chain, Vectors>(a, view, row, static_cast<long long>(tile) * (Vectors * threads));
}

// Contiguous rows of whole words: every vector is whole, and only the chain's operands need its row. A thread has one
// vector, so that most loads are in flight.
template <class Chain, class Element>
__device__ __forceinline__ void transform_whole_rows(const TransformArguments<Element, Walk::rows>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  const std::uint32_t vector = blockIdx.x * kTransformThreads + threadIdx.x;
  const std::uint32_t row = a.vectors_divisor.quotient_of_31_bits(vector);
  if (row >= a.rows) return;
  const std::uint32_t column = (vector - row * static_cast<std::uint32_t>(a.vectors_per_row)) * kWidth;
  const long long first = static_cast<long long>(vector) * kWidth;
  const Word word = load_word(a.input + first);
  const Chain chain{a.chain};
  const auto loads = load_operands<kWidth, 1>(chain, a.chain, [row, column](const long long* strides, int) {
    return Place{.offset = row * strides[1] + column * strides[0], .stride = strides[0], .first = 0, .last = kWidth};
  });
  T values[kWidth];
  unpack<Element>(word, values);
  chain.template apply<kWidth, 1>(values, loads);
  store_slices<kWidth, 1>(a.output_type(), values, [&](auto* tag, int, const T* own) {
    using Out = std::remove_pointer_t<decltype(tag)>;
    store_vector<Out, kWidth>(static_cast<Out*>(a.output) + first, own);
  });
}

// Strided: each vector finds its own row.
template <class Chain, int Vectors, class Element>
__device__ __forceinline__ void transform_strided(const TransformArguments<Element, Walk::strided>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  const long long first = static_cast<long long>(blockIdx.x) * (Vectors * kTransformThreads) + threadIdx.x;
  long long rows[Vectors];
  VectorSpan spans[Vectors];
  T values[Vectors * kWidth];
#pragma unroll
  for (int g = 0; g < Vectors; ++g) {
    const long long vector = first + g * kTransformThreads;
    rows[g] = a.vectors_divisor.quotient(vector);
    spans[g] = {0, 0, 0};
    if (rows[g] < a.rows) {
      const int misalignment = a.template misalignment<kWidth>(a.row_offset(rows[g], a.output_strides));
      spans[g] = span_of<kWidth>(vector - rows[g] * a.vectors_per_row, misalignment, a.sizes[0]);
    }
    load_vector(a, rows[g], spans[g], values + g * kWidth);
  }
  const auto row_of = [&rows](int g) { return rows[g]; };
  const Chain chain{a.chain};
  const auto loads = load_operands<kWidth, Vectors>(chain, a.chain, places_of(a, spans, row_of));
  finish_vectors<kWidth>(a, chain, loads, spans, row_of, values);
}

template <class Chain, int Vectors, class Element, Walk walk>
__device__ __forceinline__ void direct_transform(const TransformArguments<Element, walk>& a) {
  if constexpr (walk == Walk::strided) {
    transform_strided<Chain, Vectors>(a);
  } else {
    transform_rows<Chain, Vectors>(a);
  }
}

template <class Element, Walk walk, bool Operands>
__global__ void __launch_bounds__(kTransformThreads, transform_direct_blocks(sizeof(Element), Operands))
    direct_transform_kernel(const __grid_constant__ TransformArguments<Element, walk> a) {
  direct_transform<InterpretedChain<Compute<Element>, TransformArguments<Element, walk>::kRank, Operands>,
                   kTransformVectors<Element>>(a);
}

template <class Element, Walk walk>
struct InterpretedTransform {
  static Kernel<TransformArguments<Element, walk>> of(const TransformParams& params) {
    if constexpr (walk == Walk::flat) {
      if (params.program.operands == 0) return direct_transform_kernel<Element, walk, false>;
    }
    return direct_transform_kernel<Element, walk, true>;
  }
};
template <class Element>
struct Interpreted<TransformKernel::direct_flat, Element> : InterpretedTransform<Element, Walk::flat> {};
template <class Element>
struct Interpreted<TransformKernel::direct_rows, Element> : InterpretedTransform<Element, Walk::rows> {};
template <class Element>
struct Interpreted<TransformKernel::direct_whole_rows, Element> : InterpretedTransform<Element, Walk::rows> {};
template <class Element>
struct Interpreted<TransformKernel::direct_strided, Element> : InterpretedTransform<Element, Walk::strided> {};

}  // namespace sluice
