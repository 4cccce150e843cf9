// transform's `direct` kernel: vectors through registers.
#pragma once

#include "kernels/pipeline/copy.cuh"
#include "kernels/transform/arguments.cuh"

namespace sluice {

// A row as a block of the flat or the rows walk sees it.
template <class Element>
struct RowView {
  const char* base;  // of the input: the aligned word that vector 0's first byte lies in
  const Element* row;
  long long size;
  int misalignment;  // of the output, in elements
  int shift;         // bytes of the input's first word that stand before vector 0
  // Vectors in between are whole, and so are the words that their inputs lie in.
  long long first_whole, last_whole;

  template <Walk walk>
  __device__ RowView(const TransformArguments<Element, walk>& a, long long index) : size(a.sizes[0]) {
    constexpr int kWidth = kWordElements<Element>;
    row = a.input + a.row_offset(index, a.input_strides);
    if (a.kFlat || a.rows_alike) {
      misalignment = a.misalignment_of_all;
      shift = a.shift;
      first_whole = a.first_whole;
      last_whole = a.last_whole;
    } else {
      misalignment = a.template misalignment<kWidth>(a.row_offset(index, a.output_strides));
      shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(row - misalignment) % kWordBytes);
      first_whole = misalignment != 0 || shift != 0;
      last_whole = (size + misalignment) / kWidth - (shift != 0);
    }
    base = reinterpret_cast<const char*>(row - misalignment) - shift;
  }
};

// Whole vectors. Where the input straddles words, lanes pass each other the words that they share.
template <class Element, int Groups>
__device__ __forceinline__ void load_whole(const RowView<Element>& view, long long first, Word (&words)[Groups]) {
  const char* const from = view.base + first * kWordBytes;
#pragma unroll
  for (int g = 0; g < Groups; ++g) words[g] = load_word(from + g * (kTransformThreads * kWordBytes));
  if (view.shift == 0) return;
  const bool ends = threadIdx.x % 32 == 31;
  Word beyond[Groups];
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
    beyond[g] = ends ? load_word(from + (g * kTransformThreads + 1) * kWordBytes) : Word{};
  }
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
#pragma unroll
    for (int l = 0; l < 4; ++l) {
      const std::uint32_t passed = __shfl_down_sync(0xffffffffu, words[g].lanes[l], 1);
      beyond[g].lanes[l] = ends ? beyond[g].lanes[l] : passed;
    }
    words[g] = shift_words(words[g], beyond[g], view.shift);
  }
}

// Any vector of a row of neighbours, its elements one by one where it is the row's first or last. In a flat tensor that
// is rare, and unrolled it would be most of the kernel's code: there it is a loop through local memory.
template <bool Unrolled, class Element>
__device__ __forceinline__ Word load_partial(const RowView<Element>& view, long long vector, const VectorSpan& span) {
  constexpr int kWidth = kWordElements<Element>;
  if (vector >= view.first_whole && vector < view.last_whole) {
    const char* const from = view.base + vector * kWordBytes;
    const Word low = load_word(from);
    return view.shift == 0 ? low : shift_words(low, load_word(from + kWordBytes), view.shift);
  }
  Element elements[kWidth];
  if constexpr (Unrolled) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      elements[i] = span.first <= i && i < span.last ? view.row[span.begin + i] : convert<Element>(Compute<Element>(0));
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kWidth; ++i) {
      if (span.first <= i && i < span.last) elements[i] = view.row[span.begin + i];
    }
  }
  Word word;
  __builtin_memcpy(&word, elements, sizeof(Word));
  return word;
}

// The vector's input where neither rows nor neighbours are long: one word where it is aligned, two where it straddles
// words, else single elements.
template <class Element, class T>
__device__ __forceinline__ void load_vector(const TransformArguments<Element, Walk::strided>& a, long long row_index,
                                            const VectorSpan& span, T* values) {
  constexpr int kWidth = kWordElements<Element>;
  const Element* const row = a.input + a.row_offset(row_index, a.input_strides);
  const long long stride = a.input_stride();
  if (stride == 1 && span.first == 0 && span.last == kWidth) {
    const WordRun<Element> run(row + span.begin, row, row + a.sizes[0]);
    if (run.shift == 0) {
      unpack<Element>(load_word(run.base), values);
      return;
    }
    if (run.is_whole(0) && run.is_whole(1)) {
      unpack<Element>(shift_words(load_word(run.word(0)), load_word(run.word(1)), run.shift), values);
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values[i] = span.first <= i && i < span.last ? convert<T>(row[(span.begin + i) * stride]) : T(0);
  }
}

// A tile of a row: vectors `block` + thread, then again, `threads` vectors on.
template <class Chain, int Groups, class Element, Walk walk>
__device__ __forceinline__ void transform_tile(const TransformArguments<Element, walk>& a, const RowView<Element>& view,
                                               long long row, long long block) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kTile = Groups * kTransformThreads;
  const long long first = block + threadIdx.x;
  VectorSpan spans[Groups];
  Word words[Groups];
  if (block >= view.first_whole && block + kTile <= view.last_whole) {
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      spans[g] = {(first + g * kTransformThreads) * kWidth - view.misalignment, 0, kWidth};
    }
    load_whole(view, first, words);
  } else {
    if (first * kWidth >= view.size + view.misalignment) return;  // beyond the row's end
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      const long long vector = first + g * kTransformThreads;
      spans[g] = span_of<kWidth>(vector, view.misalignment, view.size);
      words[g] = load_partial<!a.kFlat>(view, vector, spans[g]);
    }
  }
  const auto row_of = [row](int) { return row; };
  const Chain chain{a.chain};
  const auto loads = chain.template load<kWidth, Groups>(places_of(a, spans, row_of));
  T values[Groups * kWidth];
#pragma unroll
  for (int g = 0; g < Groups; ++g) unpack<Element>(words[g], values + g * kWidth);
  finish_vectors<kWidth>(a, chain, loads, spans, row_of, values);
}

// Flat and rows: a block is a tile of one row.
template <class Chain, int Groups, class Element, Walk walk>
__device__ __forceinline__ void transform_rows(const TransformArguments<Element, walk>& a) {
  const std::uint32_t row = a.kFlat ? 0 : a.tiles_divisor.quotient_of_31_bits(blockIdx.x);
  const std::uint32_t tile = a.kFlat ? blockIdx.x : blockIdx.x - row * static_cast<std::uint32_t>(a.tiles_divisor.divisor);
  const RowView<Element> view(a, row);
  transform_tile<Chain, Groups>(a, view, row, static_cast<long long>(tile) * (Groups * kTransformThreads));
}

// Strided: each vector finds its own row.
template <class Chain, int Groups, class Element>
__device__ __forceinline__ void transform_strided(const TransformArguments<Element, Walk::strided>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;
  const long long first = static_cast<long long>(blockIdx.x) * (Groups * kTransformThreads) + threadIdx.x;
  long long rows[Groups];
  VectorSpan spans[Groups];
  T values[Groups * kWidth];
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
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
  finish_vectors<kWidth>(a, chain, chain.template load<kWidth, Groups>(places_of(a, spans, row_of)), spans, row_of, values);
}

template <class Chain, int Groups, class Element, Walk walk>
__device__ __forceinline__ void direct_transform(const TransformArguments<Element, walk>& a) {
  if constexpr (walk == Walk::strided) {
    transform_strided<Chain, Groups>(a);
  } else {
    transform_rows<Chain, Groups>(a);
  }
}

// Blocks that a multiprocessor's registers have to hold: as many as the compiler can give without spilling. A spill
// of four bytes in the chain's loop made bf16 2^26 take 333 us instead of 85.
template <class Element, bool Operands>
inline constexpr int kDirectBlocks = Operands               ? 8
                                     : sizeof(Element) == 2 ? 10
                                                            : 9;

template <class Element, Walk walk, bool Operands>
__global__ void __launch_bounds__(kTransformThreads, kDirectBlocks<Element, Operands>)
    direct_transform_kernel(const __grid_constant__ TransformArguments<Element, walk> a) {
  direct_transform<InterpretedChain<Compute<Element>, kMaxDims, Operands>, kTransformGroups<Element>>(a);
}

}  // namespace sluice
