// A pipe that copies rectangles of words. To be dropped, with the two types in it, when kernels/pipeline has them.
#pragma once

#include "kernels/pipeline/pipe.cuh"

namespace sluice {

// `rows` runs of `words`, to shared, from global memory, all 16-byte aligned.
struct WordTile {
  Word* to;
  const void* from;
  int words, rows;
  int to_pitch;          // words
  long long from_pitch;  // bytes
};

// One of the pipes of single words, in which all threads of the block produce and consume.
template <class Pipe>
class TilePipe : public Pipe {
 public:
  using Pipe::Pipe;
  static constexpr int kProducers = 0;  // beside the threads that compute

  __device__ int thread() const { return threadIdx.x; }
  __device__ int threads() const { return blockDim.x; }
  __device__ void consumer_sync() { __syncthreads(); }
  __device__ void copy(const WordTile& tile) {
    for (int w = thread(); w < tile.words * tile.rows; w += threads()) {
      const int row = w / tile.words, word = w - row * tile.words;
      Pipe::copy(tile.to + row * tile.to_pitch + word,
                 static_cast<const char*>(tile.from) + row * tile.from_pitch + word * kWordBytes);
    }
  }
};

}  // namespace sluice
