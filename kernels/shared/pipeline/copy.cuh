// The copy: a span of elements, global -> a stage in shared memory, in 16-byte words.
//
// A span starts anywhere. Its words are the aligned words of global memory that it touches, at the same offsets, so
// every word inside the span is one aligned 16-byte copy whatever the alignment:
//
//   global    ....|...xxxxx|xxxxxxxx|xxxxxxxx|xxx.....|....      x: the span   |: 16-byte boundaries
//   stage         |   xxxxx|xxxxxxxx|xxxxxxxx|xxx     |
//                  edge      pipe     pipe     edge
//
// The edge words reach outside the tensor: if the pipe has no copy for a partial word, their elements are copied one by
// one. Nothing outside the span's tensor is ever read. Completion is the pipe's business; needed alignment: the
// element's own.
#pragma once

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/common/vector.cuh"
#include "kernels/shared/pipeline/word_tile.cuh"

namespace sluice {

// The aligned words of a span. `valid_first` and `valid_last` bound the memory that may be read (usually a whole row):
// words that straddle them are edges.
template <class Element>
struct WordSpan {
  const char* base;  // the aligned word that holds the span's first element
  const char* valid_first;
  const char* valid_last;
  int shift;  // bytes of the first word before the span

  __device__ WordSpan(const Element* span, const Element* first, const Element* last)
      : valid_first(reinterpret_cast<const char*>(first)), valid_last(reinterpret_cast<const char*>(last)) {
    const auto address = reinterpret_cast<std::uintptr_t>(span);
    shift = static_cast<int>(address & (kWordBytes - 1));
    base = reinterpret_cast<const char*>(address - shift);
  }

  __device__ const char* word(int index) const { return base + static_cast<long long>(index) * kWordBytes; }
  __device__ bool is_whole(int index) const {
    return word(index) >= valid_first && word(index) + kWordBytes <= valid_last;
  }
};

// Copies the elements of an edge word that may be read; the rest of the word is not changed.
template <class Element>
__device__ __noinline__ void copy_edge(Element* to, const Element* from, const char* first, const char* last) {
#pragma unroll 1
  for (int i = 0; i < kWordElements<Element>; ++i) {
    const char* const address = reinterpret_cast<const char*>(from + i);
    if (address >= first && address < last) to[i] = from[i];
  }
}

// A word of padding, by the calling thread. `tensor`: the source of the stage's elements.
template <class Pipe>
__device__ __forceinline__ void copy_zeros(Pipe& pipe, Word* to, const void* tensor) {
  if constexpr (requires { pipe.copy_zeros(to, nullptr); }) {
    pipe.copy_zeros(
        to, reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(tensor) & ~std::uintptr_t{kWordBytes - 1}));
  } else {
    *to = Word{};
  }
}

// The bytes [first, last) of the word at `from`, and zeros around them, by the calling thread. False if the pipe has no
// copy for that; then the caller stores the word. An element has `Unit` bytes.
template <int Unit, class Pipe>
__device__ __forceinline__ bool copy_partial(Pipe& pipe, Word* to, const char* from, int first, int last) {
  if constexpr (requires { pipe.template copy_partial<Unit>(to, from, first, last); }) {
    return pipe.template copy_partial<Unit>(to, from, first, last);
  } else {
    return false;
  }
}

// Words 0 .. count - 1 of `span` into `stage`, by the pipe's producing threads together: word w by thread w modulo
// their number.
template <class Element, class Pipe>
__device__ __forceinline__ void copy_span(Pipe& pipe, Word* stage, const WordSpan<Element>& span, int count) {
  const int first = span.is_whole(0) ? 0 : 1;
  int last = count;
  while (last > first && !span.is_whole(last - 1)) --last;
  if (first < last)
    pipe.copy(WordTile{.to = stage + first, .from = span.word(first), .words = last - first, .skew = first});
  const auto edge = [&](int w) {
    if (w % pipe.threads() != pipe.thread()) return;
    const auto bytes_before = [&](const char* address) {
      return static_cast<int>(max_of<long long>(0, min_of<long long>(kWordBytes, address - span.word(w))));
    };
    const int begin = bytes_before(span.valid_first), end = bytes_before(span.valid_last);
    if (copy_partial<sizeof(Element)>(pipe, stage + w, span.word(w), begin, end)) return;
    copy_edge(reinterpret_cast<Element*>(stage + w), reinterpret_cast<const Element*>(span.word(w)), span.valid_first,
              span.valid_last);
  };
  if (first == 1) edge(0);
  for (int w = last; w < count; ++w) edge(w);
}

}  // namespace sluice
