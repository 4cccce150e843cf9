// The ring that benchmarks/pipeline_facts.cu measures, and the policies that make its variants.
//
//   fetch     t0 t1 t2 t3 | t4 | t5 | t6          a block has kDepth tiles in flight or in use
//   compute               | t0 | t1 | t2
//   stage     0  1  2  3    0    1    2
//
//   Task       what a thread computes from a tile: its own words, its warp's words, a window of words
//   Copy       the instruction that fetches: cp.async of 4, 8 or 16 bytes, cached in L1 or not; cp.async.bulk of a row
//   Landing    how the ring learns that a tile is there: batches of copies, or a barrier in shared memory
//   Order      which tiles a block takes
#pragma once

#include <cooperative_groups.h>
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_primitives.h>

#include <cstddef>
#include <cstdint>
#include <cuda/pipeline>
#include <cuda/ptx>

namespace facts {

namespace ptx = cuda::ptx;

constexpr int kThreads = 256, kDepth = 4, kLanes = 32;

template <int Bytes>
struct alignas(Bytes) Cell {
  float values[Bytes / 4];
  __device__ Cell& operator+=(const Cell& other) {
    for (int i = 0; i < Bytes / 4; ++i) values[i] += other.values[i];
    return *this;
  }
};

// --- Who acts when: 32 lanes at once, or a lane after another ------------------------------------
template <class Action>
__device__ void lane_by_lane(Action action) {
  const unsigned mine = threadIdx.x % kLanes;
#pragma unroll 1  // a short loop, and one copy of the action in the code
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (lane == mine) action();
  }
}

// Work that a lane does alone: a word of zeros at a tensor's edge. A copy of no bytes reads nothing, though its source
// has to be an address of global memory. A plain store would not do: it becomes a predicated instruction, and the lanes
// never part.
static __device__ int no_source;
__device__ inline void zero_a_word() {
  __shared__ int edges[kThreads];
  __pipeline_memcpy_async(edges + threadIdx.x, &no_source, sizeof(int), /*zfill=*/sizeof(int));
}

struct Converged {
  template <class Action>
  __device__ static void act(Action action) {
    action();
  }
};
// Each lane does its work and the action alone.
struct Diverged {
  template <class Action>
  __device__ static void act(Action action) {
    lane_by_lane([&] {
      zero_a_word();
      action();
    });
  }
};
// Each lane does its work alone; all lanes act together.
struct Reconverged {
  template <class Action>
  __device__ static void act(Action action) {
    lane_by_lane(zero_a_word);
    __syncwarp();
    action();
  }
};

// --- Who meets before a tile is read, and before its stage is fetched into again -----------------
struct Nobody {
  __device__ static void meet() {}
};
struct OneWarp {
  __device__ static void meet() { __syncwarp(); }
};
struct WholeBlock {
  __device__ static void meet() { __syncthreads(); }
};

// --- Landing -------------------------------------------------------------------------------------
__device__ inline void initialise(std::uint64_t* landed, int arrivals) {
  if (threadIdx.x == 0) {
    for (int s = 0; s < kDepth; ++s) ptx::mbarrier_init(landed + s, arrivals);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
}

__device__ inline void wait_for_phase(std::uint64_t* landed, int parity) {
  while (!ptx::mbarrier_try_wait_parity(landed, parity)) {
  }
}

// A thread's copies come in batches; it waits until at most kDepth - 1 batches are under way.
template <class Who, class Readers>
struct Batches {
  __device__ static void set_up(std::uint64_t* /*landed*/) {}
  __device__ static void commit(std::uint64_t* /*landed*/) {
    Who::act([] { __pipeline_commit(); });
  }
  __device__ static void wait(std::uint64_t* /*landed*/, int /*parity*/) {
    // The clobber keeps loads behind it; __pipeline_wait_prior has none.
    asm volatile("cp.async.wait_group %0;" : : "n"(kDepth - 1) : "memory");
    Readers::meet();
  }
  __device__ static void release() { Readers::meet(); }
};

// Every thread arrives on the stage's barrier, once its copies have landed.
template <class Who>
struct Arrivals {
  __device__ static void set_up(std::uint64_t* landed) { initialise(landed, kThreads); }
  __device__ static void commit(std::uint64_t* landed) {
    Who::act([landed] {
      __pipeline_arrive_on(landed);
      __mbarrier_arrive(landed);
    });
  }
  __device__ static void wait(std::uint64_t* landed, int parity) { wait_for_phase(landed, parity); }
  __device__ static void release() {}
};

// The stage's barrier counts the bytes of a bulk copy. The fence orders reads of the stage before the copy engine's
// next write to it.
struct CountedBytes {
  __device__ static void set_up(std::uint64_t* landed) { initialise(landed, 1); }
  __device__ static void commit(std::uint64_t* /*landed*/) {}
  __device__ static void wait(std::uint64_t* landed, int parity) { wait_for_phase(landed, parity); }
  __device__ static void release() {
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
  }
};

// --- Copy ----------------------------------------------------------------------------------------
struct InL1 {  // cp.async.ca
  template <int Bytes>
  __device__ static void copy(std::uint32_t to, std::size_t from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" : : "r"(to), "l"(from), "n"(Bytes) : "memory");
  }
};
struct PastL1 {  // cp.async.cg, which has 16 bytes alone
  template <int Bytes>
  __device__ static void copy(std::uint32_t to, std::size_t from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" : : "r"(to), "l"(from), "n"(Bytes) : "memory");
  }
};

// Each thread copies every kThreads-th word.
template <int Bytes, class Cached>
struct WordByWord {
  using Word = Cell<Bytes>;
  template <int Words>
  __device__ static void tile(Word* to, const Word* from, std::uint64_t* /*landed*/) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int first = 0; first < Words; first += kThreads) {
      if (first + kThreads > Words && thread >= Words - first) return;
      Cached::template copy<Bytes>(static_cast<std::uint32_t>(__cvta_generic_to_shared(to + first + thread)),
                                   __cvta_generic_to_global(from + first + thread));
    }
  }
};

// The block copies the tile by cuda::memcpy_async, which is promised this alignment of addresses and size.
template <int Alignment>
struct Promised {
  using Word = Cell<16>;
  template <int Words>
  __device__ static void tile(Word* to, const Word* from, std::uint64_t* /*landed*/) {
    auto own = cuda::make_pipeline();  // each thread's; its copies are of the batch that is committed next
    // A pointer to Word would promise 16 bytes by itself.
    cuda::memcpy_async(cooperative_groups::this_thread_block(), reinterpret_cast<float*>(to),
                       reinterpret_cast<const float*>(from), cuda::aligned_size_t<Alignment>(Words * sizeof(Word)),
                       own);
  }
};

// One thread copies the row.
struct WholeRow {
  using Word = Cell<16>;
  template <int Words>
  __device__ static void tile(Word* to, const Word* from, std::uint64_t* landed) {
    if (threadIdx.x != 0) return;
    constexpr std::uint32_t kBytes = Words * sizeof(Word);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, landed, kBytes);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, to, from, kBytes, landed);
  }
};

// --- Task: word w of a tile, on the device; float i of the result, on the host -------------------
// A thread reads what it copied.
template <int WordsEach>
struct OwnWords {
  static constexpr int kWordsEach = WordsEach, kHalo = 0;
  template <class Word>
  __device__ static Word compute(const Word* stage, int w) {
    Word result = stage[w];
    return result += result;
  }
  static float expected(const float* from, std::size_t i) { return from[i] + from[i]; }
};

// A thread adds the words of its two neighbours, in a circle of the 32 words that its warp copied.
struct WarpsWords {
  static constexpr int kWordsEach = 4, kHalo = 0;
  template <class Word>
  __device__ static Word compute(const Word* stage, int w) {
    const int lane = w % kLanes, first = w - lane;
    Word sum = stage[w];
    sum += stage[first + (lane + 1) % kLanes];
    return sum += stage[first + (lane + kLanes - 1) % kLanes];
  }
  static float expected(const float* from, std::size_t i) {  // of 16-byte words
    constexpr std::size_t kFloats = 4, kCircle = kFloats * kLanes;
    const std::size_t first = i / kCircle * kCircle, place = i % kCircle;
    return from[i] + from[first + (place + kFloats) % kCircle] + from[first + (place + kCircle - kFloats) % kCircle];
  }
};

// A thread adds a word and the three on either side of it, so a tile is fetched with a halo (h).
//
//   tile 0   hhh0000000000hhh
//   tile 1             hhh1111111111hhh      neighbours share six words
struct Window {
  static constexpr int kWordsEach = 1, kHalo = 6;
  template <class Word>
  __device__ static Word compute(const Word* stage, int w) {
    Word sum = stage[w];
    for (int k = 1; k <= kHalo; ++k) sum += stage[w + k];
    return sum;
  }
  static float expected(const float* from, std::size_t i) {  // of 16-byte words
    float sum = 0;
    for (std::size_t k = 0; k <= kHalo; ++k) sum += from[i + 4 * k];
    return sum;
  }
};

// --- Order ---------------------------------------------------------------------------------------
// The next tile belongs to the next block, on another multiprocessor.
struct Strided {
  int first, step, end;
  __device__ explicit Strided(int tiles)
      : first(static_cast<int>(blockIdx.x)), step(static_cast<int>(gridDim.x)), end(tiles) {}
};
// The next tile belongs to the same block.
struct Consecutive {
  static constexpr int step = 1;
  int first, end;
  __device__ explicit Consecutive(int tiles) {
    const int blocks = static_cast<int>(gridDim.x), each = (tiles + blocks - 1) / blocks;
    first = min(static_cast<int>(blockIdx.x) * each, tiles);
    end = min(first + each, tiles);
  }
};

// --- The ring ------------------------------------------------------------------------------------
template <class TaskOf, class CopyOf, class LandingOf, class OrderOf = Strided>
struct Variant {
  using Task = TaskOf;
  using Copy = CopyOf;
  using Landing = LandingOf;
  using Order = OrderOf;
  using Word = typename Copy::Word;
  static constexpr int kTileWords = Task::kWordsEach * kThreads, kStageWords = kTileWords + Task::kHalo;
  static constexpr int kSharedBytes = kDepth * kStageWords * static_cast<int>(sizeof(Word));
};

template <class V>
__global__ void __launch_bounds__(kThreads) ring(const typename V::Word* from, typename V::Word* to, int tiles) {
  using Word = typename V::Word;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ std::uint64_t landed[kDepth];
  Word* const stages = reinterpret_cast<Word*>(shared);
  V::Landing::set_up(landed);
  const typename V::Order order(tiles);
  const auto fetch = [&](int tile, int stage) {
    if (tile < order.end) {
      const Word* const start = from + static_cast<long long>(tile) * V::kTileWords;
      V::Copy::template tile<V::kStageWords>(stages + stage * V::kStageWords, start, landed + stage);
    }
    V::Landing::commit(landed + stage);
  };
  int ahead = order.first;
  for (int s = 0; s < kDepth; ++s, ahead += order.step) fetch(ahead, s);
  int stage = 0, parity = 0;
  for (int tile = order.first; tile < order.end; tile += order.step, ahead += order.step) {
    V::Landing::wait(landed + stage, parity);
    Word* const result = to + static_cast<long long>(tile) * V::kTileWords;
#pragma unroll
    for (int first = 0; first < V::kTileWords; first += kThreads) {
      const int w = first + static_cast<int>(threadIdx.x);
      result[w] = V::Task::compute(stages + stage * V::kStageWords, w);
    }
    V::Landing::release();
    fetch(ahead, stage);
    stage = stage + 1 == kDepth ? 0 : stage + 1;
    if (stage == 0) parity ^= 1;
  }
  __pipeline_wait_prior(0);  // no copy may land in shared memory after its block has ended
}

}  // namespace facts
