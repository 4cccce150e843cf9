// transform's two kernels: `direct`, and one for every schedule with a ring.
//
// Rows of the innermost dimension are cut into vectors of one 16-byte word of the input's type, so that the
// *output* of each is aligned; a row's first and last vector may be partial. A thread holds several vectors:
//
//   row        |pp..vvvv|vvvvvvvv|vvvvvvvv|vvv.....|     p: misalignment of the row, in elements
//   vector          0        1        2        3
//   thread          t       t+1      t+2      t+3        then again, `threads` vectors on, Groups times
//
// The input of a vector may start anywhere: it is shifted out of the two aligned words that hold it.
#pragma once

#include "kernels/common/fast_divide.h"
#include "kernels/common/int_math.h"
#include "kernels/common/store.cuh"
#include "kernels/pipeline/copy.cuh"
#include "kernels/pipeline/pipe.cuh"
#include "kernels/stages/interpreter.cuh"
#include "kernels/stages/linked_chain.cuh"
#include "kernels/transform/tile.h"
#include "kernels/transform/transform.h"

namespace sluice {

// Offset of a row, which numbers all dimensions but the innermost. Not inlined: a kernel asks for it in
// many places, and flat problems and those of two dimensions never come here.
static __device__ __noinline__ long long offset_of_row(long long row, int rank, const FastDivisor* sizes,
                                                       const long long* strides) {
  long long offset = 0;
#pragma unroll 1
  for (int d = 1; d < rank - 1; ++d) {
    const long long next = sizes[d].quotient(row);
    offset += (row - next * sizes[d].divisor) * strides[d];
    row = next;
  }
  return offset + row * strides[rank - 1];
}

// Flat: everything is one dimension, walked alike by the input and the output. The kernel for it has no row
// arithmetic, which is what keeps its registers few enough to hide the latency of memory.
template <class Element, bool Flat>
struct TransformArguments {
  const Element* input;
  void* output;
  DType output_dtype;
  int rank;
  bool shares;  // some vector's input straddles two words, so threads read words that others copied
  int first_misalignment;
  int shift;  // flat: bytes from an aligned word to a vector's input
  int depth;
  long long sizes[kMaxDims];
  FastDivisor divisors[kMaxDims];  // of the sizes
  long long input_strides[kMaxDims];
  long long output_strides[kMaxDims];
  long long rows;
  long long vectors_per_row;
  FastDivisor vectors_divisor, tiles_divisor;  // of vectors and tiles a row
  long long tiles_per_row;
  long long first_whole, last_whole;  // flat: vectors in between are whole, and so are the words of their inputs
  ChainArguments<Compute<Element>, kMaxDims> chain;

  __device__ long long row_offset(long long row, const long long* strides) const {
    if constexpr (Flat) return 0;
    return rank <= 2 ? row * strides[1] : offset_of_row(row, rank, divisors, strides);
  }
  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output_dtype); }
  __device__ long long input_stride() const { return Flat ? 1 : input_strides[0]; }
  __device__ long long output_stride() const { return Flat ? 1 : output_strides[0]; }

  // Elements by which the row's output lies behind a vector boundary.
  template <int Width>
  __device__ int misalignment(long long row) const {
    if constexpr (Flat) return first_misalignment;
    const auto element = reinterpret_cast<std::uintptr_t>(output) / size_of(output_type()) + row_offset(row, output_strides);
    return static_cast<int>(element % Width);
  }
};

template <class Element>
inline constexpr int kTransformGroups = sizeof(Element) == 2 ? 2 : 4;

// One vector: elements begin + i of `row`, first <= i < last.
struct VectorSpan {
  long long row;
  long long begin;
  int first;
  int last;
};

template <int Width, class Element, bool Flat>
__device__ __forceinline__ VectorSpan span_of(const TransformArguments<Element, Flat>& a, long long row, long long vector) {
  VectorSpan span{Flat ? 0 : row, 0, 0, 0};
  if (row >= a.rows || vector >= a.vectors_per_row) return span;
  span.begin = vector * Width - a.template misalignment<Width>(row);
  span.first = span.begin < 0 ? static_cast<int>(-span.begin) : 0;
  const long long left = a.sizes[0] - span.begin;
  span.last = left < Width ? static_cast<int>(left) : Width;
  return span;
}

// The vector's input: one word where it is aligned, two where it straddles words, else single elements.
template <class Element, bool Flat, class T>
__device__ __forceinline__ void load_vector(const TransformArguments<Element, Flat>& a, const VectorSpan& span, T* values) {
  constexpr int kWidth = kWordElements<Element>;
  const Element* const row = a.input + a.row_offset(span.row, a.input_strides);
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

// Flat: the vectors of a block that are all whole, neighbours included where the input straddles words. Lanes pass each
// other the words that they share.
template <class Element, int Groups, bool Flat, class T>
__device__ __forceinline__ void load_whole(const TransformArguments<Element, Flat>& a, long long first, T* values) {
  constexpr int kWidth = kWordElements<Element>;
  const char* const base = reinterpret_cast<const char*>(a.input + first * kWidth - a.first_misalignment) - a.shift;
  Word words[Groups];
#pragma unroll
  for (int g = 0; g < Groups; ++g) words[g] = load_word(base + g * (kTransformThreads * kWordBytes));
  if (a.shift != 0) {
    const bool ends = threadIdx.x % 32 == 31;
    Word beyond[Groups];
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      beyond[g] = ends ? load_word(base + (g * kTransformThreads + 1) * kWordBytes) : Word{};
    }
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const std::uint32_t passed = __shfl_down_sync(0xffffffffu, words[g].lanes[l], 1);
        beyond[g].lanes[l] = ends ? beyond[g].lanes[l] : passed;
      }
      words[g] = shift_words(words[g], beyond[g], a.shift);
    }
  }
#pragma unroll
  for (int g = 0; g < Groups; ++g) unpack<Element>(words[g], values + g * kWidth);
}

// The partial vectors at either end of a flat tensor: a loop, through local memory, because it is rare and unrolled
// it is most of the kernel's code.
template <class Element, int Groups, bool Flat, class T>
__device__ __forceinline__ void load_edge(const TransformArguments<Element, Flat>& a, const VectorSpan (&spans)[Groups], T* values) {
  constexpr int kWidth = kWordElements<Element>;
  T staged[Groups * kWidth];
#pragma unroll
  for (int g = 0; g < Groups; ++g) {
#pragma unroll 1
    for (int i = 0; i < kWidth; ++i) {
      const bool inside = spans[g].first <= i && i < spans[g].last;
      staged[g * kWidth + i] = inside ? convert<T>(a.input[spans[g].begin + i]) : T(0);
    }
  }
#pragma unroll
  for (int i = 0; i < Groups * kWidth; ++i) values[i] = staged[i];
}

template <class Out, int Width, class T>
__device__ __forceinline__ void store_edge(Out* to, const VectorSpan& span, const T* values) {
  T staged[Width];
#pragma unroll
  for (int i = 0; i < Width; ++i) staged[i] = values[i];
#pragma unroll 1
  for (int i = span.first; i < span.last; ++i) to[i] = convert<Out>(staged[i]);
}

// Runs the chain on Groups vectors and stores them.
template <class Chain, class Element, int Groups, bool Flat, class T>
__device__ __forceinline__ void finish_vectors(const TransformArguments<Element, Flat>& a, const VectorSpan (&spans)[Groups],
                                               T (&values)[Groups * kWordElements<Element>]) {
  constexpr int kWidth = kWordElements<Element>;
  const Chain chain{a.chain};
  chain.template apply<kWidth, Groups>(values, [&](int operand, int g) {
    const long long* const strides = a.chain.operands[operand].strides;
    const VectorSpan& span = spans[g];
    const long long row = a.row_offset(span.row, strides);
    return Place{row + span.begin * strides[0], strides[0], span.first, span.last, row, row + a.sizes[0]};
  });
  with_element_type(a.output_type(), [&](auto* tag) {
    using Out = std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>;
    const long long stride = a.output_stride();
#pragma unroll
    for (int g = 0; g < Groups; ++g) {
      const VectorSpan& span = spans[g];
      Out* const to = static_cast<Out*>(a.output) + a.row_offset(span.row, a.output_strides) + span.begin * stride;
      if (Flat && (span.first > 0 || span.last < kWidth)) {
        store_edge<Out, kWidth>(to, span, values + g * kWidth);
      } else {
        store_elements<Out, kWidth>(to, stride, Flat ? 0 : span.first, Flat ? kWidth : span.last, values + g * kWidth);
      }
    }
  });
}

// Blocks that a multiprocessor's registers have to hold: as many as the compiler can give without spilling. A spill
// of four bytes in the chain's loop made bf16 2^26 take 333 us instead of 85.
template <class Element, bool Operands>
inline constexpr int kDirectBlocks = Operands               ? 8
                                     : sizeof(Element) == 2 ? 10
                                                            : 9;

template <class Chain, class Element, bool Flat>
__device__ __forceinline__ void direct_transform(const TransformArguments<Element, Flat>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kGroups = kTransformGroups<Element>;
  VectorSpan spans[kGroups];
  T values[kGroups * kWidth];
  const long long block = static_cast<long long>(blockIdx.x) * (kGroups * kTransformThreads), first = block + threadIdx.x;
  if (Flat && block >= a.first_whole && block + kGroups * kTransformThreads <= a.last_whole) {
    const long long begin = first * kWidth - a.first_misalignment;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) spans[g] = {0, begin + g * kTransformThreads * kWidth, 0, kWidth};
    load_whole<Element, kGroups>(a, first, values);
  } else {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const long long vector = first + g * kTransformThreads;
      const long long row = Flat ? 0 : a.vectors_divisor.quotient(vector);
      spans[g] = span_of<kWidth>(a, row, vector - row * a.vectors_per_row);
      if constexpr (!Flat) load_vector(a, spans[g], values + g * kWidth);
    }
    if constexpr (Flat) load_edge<Element, kGroups>(a, spans, values);
  }
  finish_vectors<Chain, Element, kGroups>(a, spans, values);
}

template <class Element>
using LinkedTransformChain = LinkedChain<Compute<Element>, kMaxDims, Slot::post>;

template <class Element, bool Flat, bool Operands>
__global__ void __launch_bounds__(kTransformThreads, kDirectBlocks<Element, Operands>)
    direct_transform_kernel(const __grid_constant__ TransformArguments<Element, Flat> a) {
  direct_transform<InterpretedChain<Compute<Element>, kMaxDims, Operands>>(a);
}

// A tile is Groups vectors a thread, all of one row.
//   shared memory   [ stage 0: words of a tile, and one more ] [ stage 1 ] ... [ stage depth - 1 ]
template <class Chain, class Pipe, class Element, bool Flat>
__device__ __forceinline__ void staged_transform(const TransformArguments<Element, Flat>& a) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>, kGroups = kTransformGroups<Element>;
  constexpr int kTileVectors = kGroups * kTransformThreads, kStageWords = kTileVectors + 1;
  extern __shared__ Word ring[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, a.depth, a.shares);

  const auto fetch = [&](long long tile, int stage) {
    Word* const words = ring + stage * kStageWords;
    const long long row = Flat ? 0 : a.tiles_divisor.quotient(tile);
    const long long vector = (tile - row * a.tiles_per_row) * kTileVectors;
    const Element* const from = a.input + a.row_offset(row, a.input_strides);
    const long long begin = vector * kWidth - a.template misalignment<kWidth>(row);
    if (a.input_stride() == 1) {
      const WordRun<Element> run(from + begin, from, from + a.sizes[0]);
      const long long left = a.sizes[0] - begin + run.shift / static_cast<int>(sizeof(Element));
      const int count = static_cast<int>(min_of<long long>(kTileVectors + (run.shift != 0), ceil_div<long long>(left, kWidth)));
      copy_run(pipe, words, run, count, threadIdx.x, kTransformThreads);
      return;
    }
    for (int v = threadIdx.x; v < kTileVectors; v += kTransformThreads) {
      const VectorSpan span = span_of<kWidth>(a, row, vector + v);
      Element* const to = reinterpret_cast<Element*>(words + v);
      for (int i = span.first; i < span.last; ++i) to[i] = from[(span.begin + i) * a.input_stride()];
    }
  };

  const auto compute = [&](long long tile, int stage) {
    const Word* const words = ring + stage * kStageWords;
    const long long row = Flat ? 0 : a.tiles_divisor.quotient(tile);
    const long long vector = (tile - row * a.tiles_per_row) * kTileVectors;
    VectorSpan spans[kGroups];
    T values[kGroups * kWidth];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) spans[g] = span_of<kWidth>(a, row, vector + g * kTransformThreads + threadIdx.x);
    const Element* const begin =
        a.input + a.row_offset(row, a.input_strides) + vector * kWidth - a.template misalignment<kWidth>(row);
    const int shift = a.input_stride() == 1 ? static_cast<int>(reinterpret_cast<std::uintptr_t>(begin) & (kWordBytes - 1)) : 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int v = g * kTransformThreads + threadIdx.x;
      const Word low = words[v];
      unpack<Element>(shift == 0 ? low : shift_words(low, words[v + 1], shift), values + g * kWidth);
    }
    finish_vectors<Chain, Element, kGroups>(a, spans, values);
  };

  run_ring(pipe, a.depth, blockIdx.x, a.rows * a.tiles_per_row, gridDim.x, fetch, compute);
}

template <class Element, bool Flat, class Pipe>
__global__ void __launch_bounds__(kTransformThreads, kTransformResidentBlocks)
    staged_transform_kernel(const __grid_constant__ TransformArguments<Element, Flat> a) {
  staged_transform<InterpretedChain<Compute<Element>, kMaxDims>, Pipe>(a);
}

}  // namespace sluice
