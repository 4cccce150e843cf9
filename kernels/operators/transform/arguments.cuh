// The arguments of transform's kernels, and how a tensor is cut into vectors.
//
// Rows of the innermost dimension are cut into vectors of one 16-byte word of the input's type, so that the
// *output* of each is aligned; a row's first and last vector may be partial. A thread holds several vectors:
//
//   row        |pp..vvvv|vvvvvvvv|vvvvvvvv|vvv.....|     p: misalignment of the row, in elements
//   vector          0        1        2        3
//
// The input of a vector may start anywhere: it is shifted out of the two aligned words that hold it.
#pragma once

#include "kernels/operators/transform/policy.h"
#include "kernels/operators/transform/transform.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/fast_divide.h"
#include "kernels/shared/common/int_math.h"
#include "kernels/shared/pipeline/launch.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/interpreter.cuh"
#include "kernels/shared/stages/linked_chain.cuh"

namespace sluice {

template <class Element>
inline constexpr int kTransformVectors = transform_vectors(kDType<Element>);

// Offset of a row, which is the index over all dimensions but the innermost. A row in 32 bits is less than 2^31.
template <class Row>
__device__ __forceinline__ long long walk_dimensions(Row row, int rank, const FastDivisor* sizes,
                                                     const long long* strides) {
  long long offset = 0;
#pragma unroll 1
  for (int d = 1; d < rank - 1; ++d) {
    Row next;
    if constexpr (sizeof(Row) == 4) {
      next = sizes[d].quotient_of_31_bits(row);
    } else {
      next = sizes[d].quotient(row);
    }
    offset += (row - next * static_cast<Row>(sizes[d].divisor)) * strides[d];
    row = next;
  }
  return offset + row * strides[rank - 1];
}

// Not inlined: the strided walk calls it in many places.
static __device__ __noinline__ long long offset_of_row(long long row, int rank, const FastDivisor* sizes,
                                                       const long long* strides) {
  return walk_dimensions(row, rank, sizes, strides);
}

template <class Element, Walk walk>
struct TransformArguments {
  static constexpr bool kFlat = walk == Walk::flat;
  static constexpr int kRank = kFlat ? 1 : kMaxDims;
  // A flat tensor's members come first: every further line of constant memory that a block fetches before its first
  // load is latency that a small tensor feels.
  const Element* input;
  void* output;
  // RowView's members for a flat tensor's one row. Rows: the first two for all rows, if they are equally aligned.
  int misalignment_of_all, shift;
  long long first_whole, last_whole;
  ChainArguments<Compute<Element>, kRank> chain;

  long long sizes[kRank];
  DType output_dtype;
  int rank;
  bool shares;  // some vector's input straddles two words, so threads read words that others copied
  bool rows_equally_aligned;
  int depth;
  Schedule schedule;
  long long input_extent;       // elements from `input` to the end of the last element: all may be read
  FastDivisor divisors[kRank];  // divisors of the sizes
  long long input_strides[kRank];
  long long output_strides[kRank];
  long long rows;
  long long vectors_per_row;
  long long tiles_per_row;
  FastDivisor vectors_divisor, tiles_divisor;  // vectors and tiles per row

  __device__ long long row_offset(long long row, const long long* strides) const {
    if constexpr (kFlat) return 0;
    if (rank <= 2) return row * strides[1];
    // A block of the rows walk is in one row, and a grid has less than 2^31 blocks.
    if constexpr (walk == Walk::rows) return walk_dimensions(static_cast<std::uint32_t>(row), rank, divisors, strides);
    return offset_of_row(row, rank, divisors, strides);
  }
  __device__ DType output_type() const { return known_dtype(LinkedTensor::output, output_dtype); }
  __device__ long long input_stride() const { return walk == Walk::strided ? input_strides[0] : 1; }
  __device__ long long output_stride() const { return walk == Walk::strided ? output_strides[0] : 1; }

  // The misalignment in elements of a row's output at `offset`.
  template <int Width>
  __device__ int misalignment(long long offset) const {
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(output) / size_of(output_type()) + offset) % Width);
  }
};

// One vector: elements begin + i of a row, first <= i < last.
struct VectorSpan {
  long long begin;
  int first;
  int last;
};

template <int Width>
__device__ __forceinline__ VectorSpan span_of(long long vector, int misalignment, long long size) {
  VectorSpan span{vector * Width - misalignment, 0, 0};
  span.first = span.begin < 0 ? static_cast<int>(-span.begin) : 0;
  const long long left = size - span.begin;
  span.last = left < Width ? static_cast<int>(max_of<long long>(left, 0)) : Width;
  return span;
}

// Elements one by one, in a loop through local memory: a row's first and last vector.
template <class Out, int Width, class T>
__device__ __forceinline__ void store_partial(Out* to, const VectorSpan& span, const T* values) {
  T staged[Width];
#pragma unroll
  for (int i = 0; i < Width; ++i) staged[i] = values[i];
#pragma unroll 1
  for (int i = span.first; i < span.last; ++i) to[i] = convert<Out>(staged[i]);
}

// Applies the chain to the thread's vectors and stores them. `row_of(g)` is the row of vector g.
template <int Width, class Element, int Vectors, Walk walk, class Chain, class Loads, class RowOf, class T>
__device__ __forceinline__ void finish_vectors(const TransformArguments<Element, walk>& a, const Chain& chain,
                                               const Loads& loads, const VectorSpan (&spans)[Vectors], RowOf&& row_of,
                                               T (&values)[Vectors * Width]) {
  chain.template apply<Width, Vectors>(values, loads);
  store_slices<Width, Vectors>(a.output_type(), values, [&](auto* tag, int g, const T* own) {
    using Out = std::remove_pointer_t<decltype(tag)>;
    const VectorSpan& span = spans[g];
    const long long stride = a.output_stride();
    Out* const to = static_cast<Out*>(a.output) + a.row_offset(row_of(g), a.output_strides) + span.begin * stride;
    if (walk == Walk::strided) {
      store_elements<Out, Width>(to, stride, span.first, span.last, own);
    } else if (span.first == 0 && span.last == Width) {
      store_vector<Out, Width>(to, own);
    } else {
      store_partial<Out, Width>(to, span, own);
    }
  });
}

template <class Element, Walk walk>
using LinkedTransformChain = LinkedChain<Compute<Element>, TransformArguments<Element, walk>::kRank, ChainSite::post>;

// The places of a thread's vectors in an operand.
template <class Element, Walk walk, int Vectors, class RowOf>
__device__ __forceinline__ auto places_of(const TransformArguments<Element, walk>& a,
                                          const VectorSpan (&spans)[Vectors], RowOf&& row_of) {
  return [&a, &spans, row_of](const long long* strides, int g) {
    const long long offset = a.row_offset(row_of(g), strides) + spans[g].begin * strides[0];
    return Place{.offset = offset, .stride = strides[0], .first = spans[g].first, .last = spans[g].last};
  };
}

template <class Element, Walk walk>
void fill(TransformArguments<Element, walk>& a, const TransformParams& params, const TransformPlan& plan) {
  constexpr int kWidth = kWordElements<Element>;
  a.input = params.input.template as<const Element>();
  a.output = params.output.data;
  a.output_dtype = params.output.dtype;
  a.rank = params.rank;
  a.depth = plan.depth;
  a.schedule = plan.schedule;
  const TransformProblem& problem = plan.problem;
  a.shift = static_cast<int>(
      (reinterpret_cast<std::uintptr_t>(params.input.data) - problem.misalignment * sizeof(Element)) % kWordBytes);
  a.rows_equally_aligned = true;
  a.input_extent = 1;
  for (int d = 0; d < params.rank; ++d) {
    a.sizes[d] = params.sizes[d];
    a.input_strides[d] = params.input.strides[d];
    a.output_strides[d] = params.output.strides[d];
    a.input_extent += (params.sizes[d] - 1) * params.input.strides[d];
    if (!a.kFlat) a.divisors[d] = FastDivisor(params.sizes[d]);
    a.rows_equally_aligned =
        a.rows_equally_aligned &&
        (d == 0 || (params.input.strides[d] % kWidth == 0 && params.output.strides[d] % kWidth == 0));
  }
  a.shares = a.shift != 0 || !a.rows_equally_aligned;
  a.rows = problem.rows();
  a.vectors_per_row = problem.vectors_per_row();
  a.tiles_per_row = ceil_div<long long>(a.vectors_per_row, plan.tile / kWidth);
  a.misalignment_of_all = problem.misalignment;
  a.first_whole = problem.misalignment != 0 || a.shift != 0;
  a.last_whole = (problem.inner + problem.misalignment) / kWidth - (a.shift != 0);
  a.vectors_divisor = FastDivisor(a.vectors_per_row);
  a.tiles_divisor = FastDivisor(a.tiles_per_row);
  a.chain = make_chain_arguments<Compute<Element>, TransformArguments<Element, walk>::kRank>(
      params.program, params.operands, params.rank, params.sizes);
}

}  // namespace sluice
