// Schedule `primitives`: the C-like interface under cuda::pipeline. __pipeline_memcpy_async of 16 bytes, zero-filled
// for words of padding and for a row's last word; of 4 and 8 bytes for a row's first word. A thread that only reads its
// own copies waits for its own copy groups (__pipeline_commit, __pipeline_wait_prior); if threads share a stage, its
// copies arrive on a barrier in shared memory (__pipeline_arrive_on).
#pragma once

#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

#include "kernels/shared/pipeline/mbarrier.cuh"
#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class PrimitivesPipe : public WholeBlock {
 public:
  struct Storage {
    __mbarrier_t landed[kMaxDepth];
  };

  __device__ PrimitivesPipe(Storage& storage, Ring ring, bool shares)
      : landed_(storage.landed), depth_(ring.depth), shares_(shares) {
    if (!shares) return;
    if (threadIdx.x == 0) {
      for (int s = 0; s < ring.depth; ++s) __mbarrier_init(landed_ + s, blockDim.x);
    }
    __syncthreads();
  }

  __device__ void producer_acquire() {}
  __device__ void copy(const WordTile& tile) {
    share_words(tile, thread(), threads(),
                [](Word* to, const char* from) { __pipeline_memcpy_async(to, from, kWordBytes); });
  }
  // A word of zeros, without a load: nothing is read at `from`, but it has to be an aligned address.
  __device__ void copy_zeros(Word* to, const char* from) { __pipeline_memcpy_async(to, from, kWordBytes, kWordBytes); }
  // The bytes [first, last) of a word, and zeros around them; false if that takes more than copies. An element has
  // `Unit` bytes.
  //
  //   the row ends here    |xxxxxx..|  16 bytes, the last of them zero-filled
  //   it begins here       |..xxxxxx|  0 4 8   |....xxxx|  0 8   |......xx|  0 0 4     0: a zero-filled copy
  template <int Unit>
  __device__ bool copy_partial(Word* to, const char* from, int first, int last) {
    if (first == 0) {
#pragma unroll
      for (int bytes = Unit; bytes <= kWordBytes; bytes += Unit) {
        if (bytes == last) __pipeline_memcpy_async(to, from, kWordBytes, kWordBytes - bytes);
      }
      return true;
    }
    if (first % 4 != 0 || last != kWordBytes) return false;
#pragma unroll
    for (int at = 0; at < kWordBytes; at += 8) {
      char* const place = reinterpret_cast<char*>(to) + at;
      if (first <= at) {
        __pipeline_memcpy_async(place, from + at, 8);
      } else if (first >= at + 8) {
        __pipeline_memcpy_async(place, from + at, 8, 8);
      } else {
        __pipeline_memcpy_async(place, from + at, 4, 4);
        __pipeline_memcpy_async(place + 4, from + at + 4, 4);
      }
    }
    return true;
  }
  __device__ void producer_commit() {
    if (shares_) {
      __pipeline_arrive_on(landed_ + fetch_);
      __mbarrier_arrive(landed_ + fetch_);
      fetch_ = next_stage(fetch_, depth_);
    } else {
      __syncwarp();  // a converged warp's copy groups are counted as one
      __pipeline_commit();
      ++in_flight_;
    }
  }
  __device__ void consumer_wait() {
    if (shares_) {
      wait_for_phase(reinterpret_cast<std::uint64_t*>(landed_ + compute_), parity_);
    } else {
      wait_until(--in_flight_);
    }
  }
  __device__ void consumer_release() {
    if (!shares_) return;
    __syncthreads();
    compute_ = next_stage(compute_, depth_);
    if (compute_ == 0) parity_ ^= 1;
  }

 private:
  // Waits until at most `groups` copy groups are in flight. The count is part of the instruction.
  __device__ static void wait_until(int groups) {
    switch (groups) {
      case 0: return __pipeline_wait_prior(0);
      case 1: return __pipeline_wait_prior(1);
      case 2: return __pipeline_wait_prior(2);
      case 3: return __pipeline_wait_prior(3);
      case 4: return __pipeline_wait_prior(4);
      case 5: return __pipeline_wait_prior(5);
      case 6: return __pipeline_wait_prior(6);
      default: return __pipeline_wait_prior(7);
    }
  }

  __mbarrier_t* landed_;
  int depth_;
  bool shares_;
  int fetch_ = 0, compute_ = 0, parity_ = 0;
  int in_flight_ = 0;
};

}  // namespace sluice
