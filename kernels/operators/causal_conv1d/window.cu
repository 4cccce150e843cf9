// A warp, or where channels are contiguous a thread, for each channel of a row.
#include "kernels/operators/causal_conv1d/new_state.cuh"
#include "kernels/operators/causal_conv1d/window_launch.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

constexpr int kThreads = 256, kWarp = 32;

// Threads of a (row, channel). Adjacent threads have adjacent channels, or adjacent columns.
struct Line {
  long long row, channel;
  int lane, lanes;

  __device__ Line(long long index, long long channels, bool across) {
    lanes = across ? 1 : kWarp;
    const long long line = index / lanes;
    lane = static_cast<int>(index % lanes);
    row = line / channels;
    channel = line % channels;
  }
  // Before this line reads what other lanes have written, or writes what they read.
  __device__ void sync() const {
    if (lanes == kWarp) __syncwarp();
  }
};

long long blocks_for(long long lines, bool across) {
  return ceil_div<long long>(lines * (across ? 1 : kWarp), kThreads);
}

__device__ __forceinline__ long long offset_in(const Operand<3>& tensor, long long i, long long j) {
  return i * tensor.strides[0] + j * tensor.strides[1];
}

struct WindowArguments : WindowParams {
  bool across;
  long long lines;           // rows times channels; then as many for each part of the input
  long long parts, by_part;  // parts of the input, and positions of a part
};

__device__ void fill_history(const WindowArguments& a, const Line& line, long long slot) {
  const ValueRun before = a.before(line.row, slot, line.channel, a.states.columns - a.history);
  const long long to = offset_in(a.window, line.row, line.channel);
  for (long long j = line.lane; j < a.history; j += line.lanes) {
    store_bits(a.window.dtype, a.window.data, to + j * a.window.strides[2], bits_at(before, j, a.window.dtype));
  }
}

__device__ void copy_input(const WindowArguments& a, const Line& line, long long first) {
  const long long from = offset_in(a.input, line.row, line.channel), last = min_of(a.length, first + a.by_part);
  const long long to = offset_in(a.window, line.row, line.channel) + a.history * a.window.strides[2];
  for (long long t = first + line.lane; t < last; t += line.lanes) {
    const std::uint64_t bits = load_bits(a.input.dtype, a.input.data, from + t * a.input.strides[2]);
    store_bits(a.window.dtype, a.window.data, to + t * a.window.strides[2], bits);
  }
}

// In place, from the oldest column on: a column takes the old value of a later column.
__device__ void replace_state(const WindowArguments& a, const Line& line, long long slot) {
  const NewState state(a, line.row, slot, line.channel);
  for (long long first = 0; first < a.states.columns; first += line.lanes) {
    const long long j = first + line.lane;
    const std::uint64_t bits = j < a.states.columns ? state.bits(j) : 0;
    line.sync();
    if (j < a.states.columns) state.store(j, bits);
    line.sync();
  }
}

__global__ void __launch_bounds__(kThreads) window_kernel(const __grid_constant__ WindowArguments a) {
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const long long part = index / (a.across ? 1 : kWarp) / a.lines;
  const Line line(index - part * a.lines * (a.across ? 1 : kWarp), a.channels, a.across);
  if (part > a.parts) return;
  if (part > 0) return copy_input(a, line, (part - 1) * a.by_part);
  const long long slot = a.states.slot_of(line.row);
  if (a.window.exists()) return fill_history(a, line, slot);
  if (slot >= 0) replace_state(a, line, slot);
}

constexpr int kBlocksPerRow = 8;

struct ZeroRowsArguments : ZeroRowsParams {
  bool across;
};

__global__ void __launch_bounds__(kThreads) zero_rows_kernel(const __grid_constant__ ZeroRowsArguments a) {
  const long long row = blockIdx.x / kBlocksPerRow, elements = a.channels * a.columns;
  if (!a.clears(row)) return;
  for (long long i = blockIdx.x % kBlocksPerRow * kThreads + threadIdx.x; i < elements; i += kBlocksPerRow * kThreads) {
    const long long channel = a.across ? i % a.channels : i / a.columns;
    const long long column = a.across ? i / a.channels : i % a.columns;
    store_bits(a.tensor.dtype, a.tensor.data, offset_in(a.tensor, row, channel) + column * a.tensor.strides[2], 0);
  }
}

struct OverlapArguments : OverlapParams {
  bool across;
  long long lines;
};

template <class T>
__global__ void __launch_bounds__(kThreads) overlap_kernel(const __grid_constant__ OverlapArguments a) {
  const long long index = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= a.lines * (a.across ? 1 : kWarp)) return;
  const Line line(index, a.channels, a.across);
  const long long slot = a.states.slot_of(line.row);
  if (slot < 0 || !(a.replaces || a.states.has_history(line.row))) return;
  const Operand<3>& cache = a.states.before;
  T* const sums = a.sums.template as<T>() + offset_in(a.sums, line.row, line.channel);
  T* const overlap = cache.template as<T>() + offset_in(cache, slot, line.channel);
  const long long step = a.sums.strides[2], overlap_step = cache.strides[2];
  for (long long j = line.lane; j < a.overlap; j += line.lanes) {
    if (a.replaces) {
      overlap[j * overlap_step] = sums[(a.length + j) * step];
    } else {
      sums[j * step] += overlap[j * overlap_step];
    }
  }
}

}  // namespace

cudaError_t launch_window(const WindowParams& params, cudaStream_t stream) {
  WindowArguments a{params};
  a.across = params.input.strides[1] == 1 && params.input.strides[2] != 1;
  a.lines = params.states.count * params.channels;
  a.by_part = a.across ? 32 : 1024;
  a.parts = a.window.exists() ? ceil_div(a.length, a.by_part) : 0;
  return launch_kernel(window_kernel, blocks_for(a.lines * (1 + a.parts), a.across), kThreads, 0, stream, a);
}

cudaError_t launch_zero_rows(const ZeroRowsParams& params, cudaStream_t stream) {
  ZeroRowsArguments a{params};
  a.across = params.tensor.strides[1] == 1;
  return launch_kernel(zero_rows_kernel, params.states.count * kBlocksPerRow, kThreads, 0, stream, a);
}

cudaError_t launch_overlap(const OverlapParams& params, cudaStream_t stream) {
  OverlapArguments a{params};
  a.across = params.sums.strides[1] == 1 && params.sums.strides[2] != 1;
  a.lines = params.states.count * params.channels;
  const auto kernel = params.sums.dtype == DType::float64 ? overlap_kernel<double> : overlap_kernel<float>;
  return launch_kernel(kernel, blocks_for(a.lines, a.across), kThreads, 0, stream, a);
}

}  // namespace sluice
