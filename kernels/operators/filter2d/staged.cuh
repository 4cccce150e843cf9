// filter2d for every schedule with a ring. A pipeline stage holds a tile's inputs: the image under the tile and its
// halo, row after row, as the aligned words that hold it in memory, then the taps of the tile's channel.
//
//   stage    row 0           |..xxxxxx|xxxxxxxx| ... |xxxxxx..|   pitch_words
//            row 1           |..xxxxxx|xxxxxxxx| ... |xxxxxx..|
//            ...                                                  rows of the tile + kernel_height - 1
//            taps
//
// Values outside the image are zero. If all rows are equally aligned, as in a contiguous image of a usual width, the
// words inside it are one rectangle and one copy; else each row is a copy. Words at the edges, and all words of an
// image whose columns are not contiguous, are stored one by one.
#pragma once

#include "kernels/operators/filter2d/patch.cuh"
#include "kernels/shared/pipeline/copy.cuh"
#include "kernels/shared/pipeline/interpreted_pipe.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

// A tile's stage on the image: its row i is the image's row top_row + i.
template <class Element>
struct StageGrid {
  const Filter2dArguments<Element>& a;
  Filter2dTile tile;
  long long top_row, column;  // first row and column of the window of the tile's first output
  int rows;                   // rows per stage

  __device__ StageGrid(const Filter2dArguments<Element>& arguments, const Filter2dTile& at, int tile_rows)
      : a(arguments),
        tile(at),
        top_row(at.row - a.top),
        column(at.column - a.left),
        rows(tile_rows + a.kernel_height - 1) {}

  // The element under the tile's first tap in row i; not read outside the image.
  __device__ const char* start(int i) const {
    return a.image.template as<const char>() + (tile.batch * a.image.strides[0] + tile.channel * a.image.strides[1] +
                                                (top_row + i) * a.image.strides[2] + column * a.image.strides[3]) *
                                                   static_cast<long long>(sizeof(Element));
  }
  // Bytes of row i's first word before that element.
  __device__ int shift(int i) const {
    return a.image.strides[3] == 1 ? static_cast<int>(reinterpret_cast<std::uintptr_t>(start(i)) & (kWordBytes - 1))
                                   : 0;
  }
  // The column of a word of row i.
  __device__ long long column_of(int i, int word) const {
    return column - shift(i) / static_cast<int>(sizeof(Element)) +
           static_cast<long long>(word) * kWordElements<Element>;
  }
  __device__ bool rows_equally_aligned() const {
    return a.image.strides[2] * static_cast<long long>(sizeof(Element)) % kWordBytes == 0;
  }

  struct Range {
    int first, last;
    __device__ bool has(int i) const { return first <= i && i < last; }
  };
  // The stage's rows that are inside the image.
  __device__ Range rows_inside() const {
    const int first = static_cast<int>(min_of<long long>(rows, max_of<long long>(0, -top_row)));
    return {first, static_cast<int>(max_of<long long>(first, min_of<long long>(rows, a.height - top_row)))};
  }
  // The words of row i that are entirely inside the image.
  __device__ Range words_inside(int i) const {
    constexpr int kWidth = kWordElements<Element>;
    if (a.image.strides[3] != 1) return {0, 0};
    const long long begin = column_of(i, 0), left = a.width - begin;
    const long long skipped = begin < 0 ? ceil_div<long long>(-begin, kWidth) : 0;
    const int first = static_cast<int>(min_of<long long>(a.pitch_words, skipped));
    const long long last = left < 0 ? 0 : min_of<long long>(a.pitch_words, left / kWidth);
    return {first, static_cast<int>(max_of<long long>(first, last))};
  }
};

template <class Element, class Pipe>
__device__ __forceinline__ void fetch_stage(const StageGrid<Element>& grid, Pipe& pipe, Word* words) {
  const auto& a = grid.a;
  const bool equally_aligned = grid.rows_equally_aligned();
  const auto rows = grid.rows_inside();
  const auto copy_rows = [&](int first, int count) {
    const auto inside = grid.words_inside(first);
    if (count <= 0 || inside.first >= inside.last) return;
    pipe.copy(WordTile{words + first * a.pitch_words + inside.first,
                       grid.start(first) - grid.shift(first) + inside.first * kWordBytes, inside.last - inside.first,
                       count, a.pitch_words, a.image.strides[2] * static_cast<long long>(sizeof(Element))});
  };
  if (equally_aligned) {
    copy_rows(rows.first, rows.last - rows.first);
    const auto inside = grid.words_inside(0);
    if (rows.first == 0 && rows.last == grid.rows && inside.first == 0 && inside.last == a.pitch_words) return;
  } else {
    for (int i = rows.first; i < rows.last; ++i) copy_rows(i, 1);
  }
  for (int w = pipe.thread(); w < a.stage_words; w += pipe.threads()) {
    const int i = w / a.pitch_words, word = w - i * a.pitch_words;
    if (rows.has(i) && grid.words_inside(i).has(word)) continue;
    const long long column = grid.column_of(i, word);
    const bool outside = !rows.has(i) || column >= a.width || column + kWordElements<Element> <= 0;
    if (outside) {
      copy_zeros(pipe, words + w, a.image.data);
      continue;
    }
    if (a.image.strides[3] == 1) {
      constexpr int kUnit = sizeof(Element);
      const int begin = column < 0 ? static_cast<int>(-column) : 0;
      const int end = static_cast<int>(min_of<long long>(kWordElements<Element>, a.width - column));
      const char* const from = grid.start(i) - grid.shift(i) + static_cast<long long>(word) * kWordBytes;
      if (copy_partial<kUnit>(pipe, words + w, from, begin * kUnit, end * kUnit)) continue;
    }
    words[w] = gather_word(a, grid.tile.batch, grid.tile.channel, grid.top_row + i, column);
  }
}

// A thread's window of a stage.
template <class Element>
struct StageWindow {
  const StageGrid<Element>& grid;
  const Word* words;  // its first
  int top;            // its first row in the stage

  struct Row {
    const Word* words;
    int shift;
    __device__ Word word(int index) const { return words[index]; }
  };
  __device__ Row row(int i) const { return {words + i * grid.a.pitch_words, grid.shift(top + i)}; }
};

template <class Chains, class Pipe, class Element>
__device__ __forceinline__ void staged_filter2d(const Filter2dArguments<Element>& a) {
  using T = Compute<Element>;
  extern __shared__ Word shared[];
  __shared__ typename Pipe::Storage storage;
  Pipe pipe(storage, {a.schedule, a.depth}, /*shares=*/true);
  const int stage_words = a.stage_words + a.tap_bytes / kWordBytes;
  const auto grid_of = [&](long long index) {
    return StageGrid<Element>(a, tile_at<kPatchRows>(a, index), kFilter2dThreads / a.lanes * kPatchRows);
  };

  const auto fetch = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const StageGrid<Element> grid = grid_of(index);
    fetch_stage(grid, pipe, words);
    load_taps(a, grid.tile.channel, reinterpret_cast<T*>(words + a.stage_words), pipe.thread(), pipe.threads());
  };

  const auto compute = [&](long long index, int stage) {
    Word* const words = shared + stage * stage_words;
    const StageGrid<Element> grid = grid_of(index);
    if (!typename Chains::Pre{a.pre}.empty()) {
      for (int w = threadIdx.x; w < a.stage_words; w += kFilter2dThreads) {
        const int i = w / a.pitch_words;
        words[w] = apply_pre<typename Chains::Pre>(a, words[w], grid.tile.batch, grid.tile.channel, grid.top_row + i,
                                                   grid.column_of(i, w - i * a.pitch_words));
      }
      pipe.consumer_sync();
    }
    const Patch patch = patch_at<kPatchRows>(a, grid.tile);
    if (patch.empty()) return;
    const int below = threadIdx.x / a.lanes, lane = threadIdx.x - below * a.lanes, top = below * kPatchRows;
    const StageWindow<Element> window{grid, words + top * a.pitch_words + lane * kPatchWords<Element>, top};
    const T* const taps = reinterpret_cast<const T*>(words + a.stage_words);
    T sums[kPatchRows * kPatchColumns<Element>];
    start_sums(a, patch.channel, sums);
    if (a.row_taps.exists()) {
      add_separable<kPatchRows>(a, window, taps, sums);
    } else {
      add_full_taps<kPatchRows>(a, window, SharedTaps<Element, T>{taps, a.tap_words * kWordElements<Element>}, sums);
    }
    finish_patch<typename Chains::Post, kPatchRows>(a, patch, sums);
  };

  run_ring(pipe, a.depth, blockIdx.x, a.tiles, gridDim.x, fetch, compute);
}

template <class Element>
__global__ void __launch_bounds__(kFilter2dThreads + InterpretedPipe::kProducers, kFilter2dResidentBlocks - 1)
    staged_filter2d_kernel(const __grid_constant__ Filter2dArguments<Element> a) {
  staged_filter2d<ElementwiseFilter2dChains<Element>, InterpretedPipe>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::staged, Element> {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams&) { return staged_filter2d_kernel<Element>; }
};

}  // namespace sluice
