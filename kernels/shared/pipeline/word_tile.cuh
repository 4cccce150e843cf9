// The unit of a pipe's copy: a rectangle of 16-byte words.
//
//   global    row 0  |wwwwwwww|.......        from_pitch bytes from row to row
//             row 1  |wwwwwwww|.......
//   shared    |wwwwwwww|..|wwwwwwww|..        to_pitch words from row to row
#pragma once

#include "kernels/shared/common/vector.cuh"

namespace sluice {

// `rows` spans of `words`, all 16-byte aligned on both sides.
struct WordTile {
  Word* to;
  const char* from;
  int words;
  int rows = 1;
  int to_pitch = 0;          // words
  long long from_pitch = 0;  // bytes
  // The first word's index in the stage: thread `skew` copies it. Matters if a thread only reads its own copies.
  int skew = 0;
};

// Calls `copy(to, from)` for the share of `thread` among `threads`.
template <class Copy>
__device__ __forceinline__ void share_words(const WordTile& tile, int thread, int threads, Copy&& copy) {
  if (tile.rows == 1) {
    for (int w = thread < tile.skew ? thread + threads - tile.skew : thread - tile.skew; w < tile.words; w += threads) {
      copy(tile.to + w, tile.from + static_cast<long long>(w) * kWordBytes);
    }
    return;
  }
  const int rows_a_step = threads / tile.words, words_a_step = threads - rows_a_step * tile.words;
  int row = thread / tile.words, word = thread - row * tile.words;
  while (row < tile.rows) {
    copy(tile.to + row * tile.to_pitch + word, tile.from + row * tile.from_pitch + word * kWordBytes);
    row += rows_a_step;
    word += words_a_step;
    if (word >= tile.words) {
      word -= tile.words;
      ++row;
    }
  }
}

}  // namespace sluice
