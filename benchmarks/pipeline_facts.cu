// Measures what the documentation says of asynchronous copies: a ring of four stages over 256 MiB, one thing changed
// at a time. Each row is checked against the host, and has beside it a plain copy of the same bytes from this run.
//
//   warp_entanglement   A warp's lanes share one sequence of batches. Lanes that commit together add one batch; a lane
//                       that commits alone adds one of its own, and every lane waits for it:
//
//                         together      | t0 | t1 | t2 | t3 |               all but 3 batches: t0 has landed
//                         each alone    | t0 x 32 | ... | t3 x 32 |         all but 3 batches: t3 has to land as well
//
//                       A barrier is updated once for lanes that arrive together, else once for each lane.
//   syncwarp            Lanes that read only their own warp's words need no barrier of the block.
//   cache_operator      cp.async.ca keeps the line in L1, cp.async.cg does not.
//   alignment           The address that copies of 16 bytes and bulk copies of 4 KiB start at, the alignment that
//                       cuda::aligned_size_t promises, and the width of a copy.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a benchmarks/pipeline_facts.cu -o pipeline_facts
//   ./pipeline_facts --json facts.json
//   ncu ./pipeline_facts once
//
// The results are in docs/measurements/pipeline_facts.md.
#include "pipeline_facts.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace facts;

constexpr std::size_t kBytes = 256u << 20, kFloats = kBytes / sizeof(float);
constexpr std::size_t kSlackFloats = 32;  // a window's halo, or an offset of at most 128 bytes

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "pipeline_facts: %s\n", cudaGetErrorString(status));
  std::exit(2);
}

float median(std::vector<float> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// Microseconds of what `work` queues.
template <class Work>
float timed(cudaEvent_t start, cudaEvent_t end, Work work) {
  check(cudaEventRecord(start));
  work();
  check(cudaGetLastError());
  check(cudaEventRecord(end));
  check(cudaEventSynchronize(end));
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start, end));
  return 1000 * milliseconds;
}

// How a variant is launched, beside its code.
struct Launch {
  int offset_bytes = 0;         // of the input, from a 256-byte aligned address
  bool one_block_each = false;  // one block an SM: no other block hides what it waits for
};

struct Row {
  std::string fact, variant;
  float time_us, copy_us;
};

class Measurements {
 public:
  explicit Measurements(int launches) : launches_(launches), values_(kFloats + kSlackFloats), result_(kFloats) {
    // Whole numbers, whose sums are exact in any order. None is 0, so no result is its own input.
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(1 + i * 2654435761u % 65521);
    check(cudaMalloc(&from_, values_.size() * sizeof(float)));
    check(cudaMalloc(&to_, kBytes));
    check(cudaMemcpy(from_, values_.data(), values_.size() * sizeof(float), cudaMemcpyHostToDevice));
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&end_));
  }
  Measurements(const Measurements&) = delete;
  Measurements& operator=(const Measurements&) = delete;
  ~Measurements() {
    cudaFree(from_);
    cudaFree(to_);
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }

  template <class V>
  void add(const char* fact, const std::string& variant, Launch launch = {}) {
    const Row row = timed_row<V>(fact, variant, launch);
    const bool right = is_right<typename V::Task>(launch.offset_bytes);
    all_right_ = all_right_ && right;
    rows_.push_back(row);
    std::printf("%-18s %-46s %8.1f us, a plain copy %8.1f us%s\n", fact, variant.c_str(), row.time_us, row.copy_us,
                right ? "" : ", WRONG");
    std::fflush(stdout);
  }

  [[nodiscard]] bool all_right() const { return all_right_; }
  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }

 private:
  template <class V>
  [[nodiscard]] static int blocks(Launch launch) {
    int resident = 0, multiprocessors = 0;
    check(cudaFuncSetAttribute(ring<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, V::kSharedBytes));
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, ring<V>, kThreads, V::kSharedBytes));
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
    return multiprocessors * (launch.one_block_each ? 1 : resident);
  }

  // The copy before each launch runs at the same clocks, and overwrites the result of an earlier variant.
  template <class V>
  [[nodiscard]] Row timed_row(const char* fact, const std::string& variant, Launch launch) {
    using Word = typename V::Word;
    const int grid = blocks<V>(launch), tiles = static_cast<int>(kBytes / sizeof(Word) / V::kTileWords);
    const auto* const from = reinterpret_cast<const Word*>(reinterpret_cast<const char*>(from_) + launch.offset_bytes);
    std::vector<float> times, copies;
    for (int i = 0; i < launches_; ++i) {
      copies.push_back(
          timed(start_, end_, [&] { check(cudaMemcpyAsync(to_, from_, kBytes, cudaMemcpyDeviceToDevice)); }));
      times.push_back(timed(start_, end_, [&] {
        ring<V><<<grid, kThreads, V::kSharedBytes>>>(from, reinterpret_cast<Word*>(to_), tiles);
      }));
    }
    return {fact, variant, median(times), median(copies)};
  }

  template <class Task>
  [[nodiscard]] bool is_right(int offset_bytes) {
    check(cudaMemcpy(result_.data(), to_, kBytes, cudaMemcpyDeviceToHost));
    const float* const from = values_.data() + static_cast<std::size_t>(offset_bytes) / sizeof(float);
    for (std::size_t i = 0; i < kFloats; ++i) {
      if (result_[i] != Task::expected(from, i)) return false;
    }
    return true;
  }

  int launches_;
  std::vector<float> values_, result_;
  float *from_ = nullptr, *to_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
  std::vector<Row> rows_;
  bool all_right_ = true;
};

using Copy16 = WordByWord<16, PastL1>;
using OwnBatches = Batches<Converged, Nobody>;

template <class Who>
using Commits = Variant<OwnWords<4>, Copy16, Batches<Who, Nobody>>;
template <class Who>
using Arrives = Variant<OwnWords<4>, Copy16, Arrivals<Who>>;
template <class Readers>
using Neighbours = Variant<WarpsWords, Copy16, Batches<Converged, Readers>>;
template <class Cached>
using Stream = Variant<OwnWords<4>, WordByWord<16, Cached>, OwnBatches>;
template <class Cached, class Order>
using Halo = Variant<Window, WordByWord<16, Cached>, Batches<Converged, WholeBlock>, Order>;
template <int Bytes, class Cached>  // 4 KiB a stage
using Width = Variant<OwnWords<16 / Bytes>, WordByWord<Bytes, Cached>, OwnBatches>;
template <int Alignment>  // threads read what others copied
using Promise = Variant<OwnWords<4>, Promised<Alignment>, Batches<Converged, WholeBlock>>;
using BulkRow = Variant<OwnWords<1>, WholeRow, CountedBytes>;

void measure_warp_entanglement(Measurements& all, bool one_block_each) {
  const Launch launch{.one_block_each = one_block_each};
  const std::string where = one_block_each ? ", one block an SM" : "";
  const auto add = [&]<class V>(V, const char* variant) { all.add<V>("warp_entanglement", variant + where, launch); };
  add(Commits<Converged>{}, "commit, converged");
  add(Commits<Diverged>{}, "commit, diverged");
  add(Commits<Reconverged>{}, "commit, diverged work, __syncwarp");
  add(Arrives<Converged>{}, "arrive, converged");
  add(Arrives<Diverged>{}, "arrive, diverged");
  add(Arrives<Reconverged>{}, "arrive, diverged work, __syncwarp");
}

void measure_syncwarp(Measurements& all, bool one_block_each) {
  const Launch launch{.one_block_each = one_block_each};
  const std::string where = one_block_each ? ", one block an SM" : "";
  all.add<Neighbours<WholeBlock>>("syncwarp", "__syncthreads" + where, launch);
  all.add<Neighbours<OneWarp>>("syncwarp", "__syncwarp" + where, launch);
}

void measure_cache_operator(Measurements& all) {
  const char* const fact = "cache_operator";
  all.add<Stream<InL1>>(fact, "stream, cp.async.ca");
  all.add<Stream<PastL1>>(fact, "stream, cp.async.cg");
  all.add<Halo<InL1, Strided>>(fact, "halo, cp.async.ca");
  all.add<Halo<PastL1, Strided>>(fact, "halo, cp.async.cg");
  all.add<Halo<InL1, Consecutive>>(fact, "halo, next tile in the same block, cp.async.ca");
  all.add<Halo<PastL1, Consecutive>>(fact, "halo, next tile in the same block, cp.async.cg");
}

void measure_alignment(Measurements& all) {
  for (const int offset : {0, 16, 32, 64}) {
    const std::string where = ", offset " + std::to_string(offset);
    all.add<Width<16, PastL1>>("alignment", "cp.async of 16 bytes" + where, {.offset_bytes = offset});
    all.add<BulkRow>("alignment", "cp.async.bulk of 4 KiB" + where, {.offset_bytes = offset});
  }
  all.add<Promise<4>>("alignment", "memcpy_async, aligned_size_t<4>");
  all.add<Promise<16>>("alignment", "memcpy_async, aligned_size_t<16>");
  all.add<Promise<128>>("alignment", "memcpy_async, aligned_size_t<128>");
  all.add<Width<4, InL1>>("alignment", "width 4, cp.async.ca");
  all.add<Width<8, InL1>>("alignment", "width 8, cp.async.ca");
  all.add<Width<16, InL1>>("alignment", "width 16, cp.async.ca");
  all.add<Width<16, PastL1>>("alignment", "width 16, cp.async.cg");
}

void write_json(const char* path, const std::vector<Row>& rows) {
  cudaDeviceProp device{};
  int cuda = 0;
  check(cudaGetDeviceProperties(&device, 0));
  check(cudaRuntimeGetVersion(&cuda));
  std::FILE* const file = std::fopen(path, "w");
  if (file == nullptr) {
    std::perror(path);
    std::exit(2);
  }
  std::fprintf(file,
               "{\"program\": \"pipeline_facts\", \"gpu\": \"%s\", \"cuda\": \"%d.%d\", \"bytes\": %zu, \"rows\": [",
               device.name, cuda / 1000, cuda % 1000 / 10, kBytes);
  const char* separator = "\n";
  for (const Row& row : rows) {
    std::fprintf(file, "%s  {\"fact\": \"%s\", \"variant\": \"%s\", \"time_us\": %.1f, \"copy_us\": %.1f}", separator,
                 row.fact.c_str(), row.variant.c_str(), row.time_us, row.copy_us);
    separator = ",\n";
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

}  // namespace

// pipeline_facts [once] [--json PATH]. With `once` each kernel is launched once, for a profiler.
int main(int count, char** arguments) {
  int launches = 15;
  const char* json = nullptr;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument == "once") {
      launches = 1;
    } else if (argument == "--json" && i + 1 < count) {
      json = arguments[++i];
    } else {
      std::fprintf(stderr, "pipeline_facts [once] [--json PATH], got %s\n", arguments[i]);
      return 2;
    }
  }
  Measurements all(launches);
  for (const bool one_block_each : {false, true}) {
    measure_warp_entanglement(all, one_block_each);
    measure_syncwarp(all, one_block_each);
  }
  measure_cache_operator(all);
  measure_alignment(all);
  if (json != nullptr) write_json(json, all.rows());
  return all.all_right() ? 0 : 1;
}
