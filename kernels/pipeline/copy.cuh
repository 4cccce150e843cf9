// The copy: a run of elements, global -> a stage in shared memory, in 16-byte words.
//
// A run starts anywhere. Its words are the aligned words of global memory that it touches, and they keep
// their places, so every word inside the run is one aligned 16-byte copy whatever the alignment:
//
//   global    ....|...xxxxx|xxxxxxxx|xxxxxxxx|xxx.....|....      x: the run   |: 16-byte boundaries
//   stage         |   xxxxx|xxxxxxxx|xxxxxxxx|xxx     |
//                  edge      pipe     pipe     edge
//
// The edge words reach outside the tensor: where the pipe has no copy for a part of a word, their elements are moved
// one by one. Nothing outside the run's tensor is ever read. Completion is the pipe's business; needed alignment: the
// element's own.
#pragma once

#include "kernels/common/vector.cuh"
#include "kernels/pipeline/word_tile.cuh"

namespace sluice {

// Where a run lies against 16-byte words. `valid_first` and `valid_last` bound the memory that may be read
// (a whole row, as a rule): words that straddle them are edges.
template <class Element>
struct WordRun {
  const char* base;  // the aligned word that holds the run's first element
  const char* valid_first;
  const char* valid_last;
  int shift;  // bytes of the first word that stand before the run

  __device__ WordRun(const Element* run, const Element* first, const Element* last)
      : valid_first(reinterpret_cast<const char*>(first)), valid_last(reinterpret_cast<const char*>(last)) {
    const auto address = reinterpret_cast<std::uintptr_t>(run);
    shift = static_cast<int>(address & (kWordBytes - 1));
    base = reinterpret_cast<const char*>(address - shift);
  }

  __device__ const char* word(int index) const { return base + static_cast<long long>(index) * kWordBytes; }
  __device__ bool is_whole(int index) const {
    return word(index) >= valid_first && word(index) + kWordBytes <= valid_last;
  }
};

// Copies the elements of an edge word that may be read; the rest of the word is left as it is.
template <class Element>
__device__ __noinline__ void copy_edge(Element* to, const Element* from, const char* first, const char* last) {
#pragma unroll 1
  for (int i = 0; i < kWordElements<Element>; ++i) {
    const char* const address = reinterpret_cast<const char*>(from + i);
    if (address >= first && address < last) to[i] = from[i];
  }
}

// A word of padding, by the calling thread. `tensor` is where the stage's elements come from.
template <class Pipe>
__device__ __forceinline__ void copy_zeros(Pipe& pipe, Word* to, const void* tensor) {
  if constexpr (requires { pipe.copy_zeros(to, nullptr); }) {
    pipe.copy_zeros(
        to, reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(tensor) & ~std::uintptr_t{kWordBytes - 1}));
  } else {
    *to = Word{};
  }
}

// The bytes [first, last) of the word at `from`, and zeros around them, by the calling thread. False where the pipe has
// no copy for that; then the caller stores the word. An element has `Unit` bytes.
template <int Unit, class Pipe>
__device__ __forceinline__ bool copy_part(Pipe& pipe, Word* to, const char* from, int first, int last) {
  if constexpr (requires { pipe.template copy_part<Unit>(to, from, first, last); }) {
    return pipe.template copy_part<Unit>(to, from, first, last);
  } else {
    return false;
  }
}

// Words 0 .. count - 1 of `run` into `stage`, by the pipe's producing threads together: word w is for thread w, modulo
// their number.
template <class Element, class Pipe>
__device__ __forceinline__ void copy_run(Pipe& pipe, Word* stage, const WordRun<Element>& run, int count) {
  const int first = run.is_whole(0) ? 0 : 1;
  int last = count;
  while (last > first && !run.is_whole(last - 1)) --last;
  if (first < last)
    pipe.copy(WordTile{.to = stage + first, .from = run.word(first), .words = last - first, .skew = first});
  const auto edge = [&](int w) {
    if (w % pipe.threads() != pipe.thread()) return;
    const auto bytes_before = [&](const char* address) {
      return static_cast<int>(max_of<long long>(0, min_of<long long>(kWordBytes, address - run.word(w))));
    };
    const int begin = bytes_before(run.valid_first), end = bytes_before(run.valid_last);
    if (copy_part<sizeof(Element)>(pipe, stage + w, run.word(w), begin, end)) return;
    copy_edge(reinterpret_cast<Element*>(stage + w), reinterpret_cast<const Element*>(run.word(w)), run.valid_first,
              run.valid_last);
  };
  if (first == 1) edge(0);
  for (int w = last; w < count; ++w) edge(w);
}

}  // namespace sluice
