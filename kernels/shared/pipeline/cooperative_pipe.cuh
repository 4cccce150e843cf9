// Schedule `cooperative`: cooperative_groups::memcpy_async, a copy by the whole block at a time, then its wait.
//
// The library makes each call its own cp.async group, so the pipe counts calls: the oldest batch is complete once at
// most the calls of later batches are in flight.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

#include <cstdint>

#include "kernels/shared/pipeline/pipe.cuh"

namespace sluice {

class CooperativePipe : public WholeBlock {
 public:
  struct Storage {};

  __device__ CooperativePipe(Storage&, Ring, bool /*shares*/) {}

  __device__ void producer_acquire() { calls_ = 0; }
  __device__ void copy(const WordTile& tile) {
    const auto block = cooperative_groups::this_thread_block();
    for (int r = 0; r < tile.rows; ++r) {
      cooperative_groups::memcpy_async(
          block, tile.to + r * tile.to_pitch, reinterpret_cast<const Word*>(tile.from + r * tile.from_pitch),
          cuda::aligned_size_t<kWordBytes>(static_cast<std::size_t>(tile.words) * kWordBytes));
    }
    calls_ += tile.rows;
  }
  __device__ void producer_commit() {
    const int counted = calls_ < 255 ? calls_ : 255;  // fewer than there are: a wait may only be for too many
    of_batches_ |= static_cast<std::uint64_t>(counted) << (8 * batches_);
    ++batches_;
    later_ += counted;
  }
  __device__ void consumer_wait() {
    later_ -= static_cast<int>(of_batches_ & 255);
    of_batches_ >>= 8;
    --batches_;
    wait_until(later_);
  }
  __device__ void consumer_release() { __syncthreads(); }

 private:
  // Waits until at most `calls` are in flight. The count is part of the instruction.
  __device__ static void wait_until(int calls) {
    const auto block = cooperative_groups::this_thread_block();
    switch (calls) {
      case 0: return cooperative_groups::wait(block);
      case 1: return cooperative_groups::wait_prior<1>(block);
      case 2: return cooperative_groups::wait_prior<2>(block);
      case 3: return cooperative_groups::wait_prior<3>(block);
      case 4: return cooperative_groups::wait_prior<4>(block);
      case 5: return cooperative_groups::wait_prior<5>(block);
      case 6: return cooperative_groups::wait_prior<6>(block);
      case 7: return cooperative_groups::wait_prior<7>(block);
      default: break;
    }
    if (calls < 16) return cooperative_groups::wait_prior<8>(block);
    if (calls < 32) return cooperative_groups::wait_prior<16>(block);
    if (calls < 64) return cooperative_groups::wait_prior<32>(block);
    cooperative_groups::wait_prior<64>(block);
  }

  std::uint64_t of_batches_ = 0;  // calls of each batch in flight, the oldest in the lowest byte
  int batches_ = 0, calls_ = 0;
  int later_ = 0;  // their sum
};

}  // namespace sluice
