// Any number of tokens and any state layout whose rows, of up to `kMostRowColumns` columns, are contiguous, or whose
// columns have contiguous channels. A thread has a lane of channels (update_lanes.cuh) of one sequence, a warp the rows
// of 32 lanes:
//
//   state  ->  shared memory  ->  history to registers, row moved, tokens written  ->  shared memory  ->  state
//
// Column indices are only known at run time, so rows are indexed in shared memory, without memory traffic. Columns that
// stay are written back with their own bits.
#pragma once

#include "kernels/operators/causal_conv1d/update_lanes.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {

inline constexpr int kMostRowColumns = 16;
// Tokens of a sequence in flight at once, with their chains' operands.
template <bool HasChains>
inline constexpr int kRowTokens = HasChains ? 1 : 4;

// A thread's rows in shared memory.
template <class Element>
struct SharedRows {
  static constexpr int kEach = kLaneChannels<Element>;

  Element* own;
  int channel_step, column_step;

  __device__ __forceinline__ Element& at(int i, int column) const {
    return own[i * channel_step + column * column_step];
  }
  __device__ __forceinline__ void move(int kept, int shift) const {
    for (int j = 0; j < kept; ++j) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) at(i, j) = at(i, j + shift);
    }
  }
  __device__ __forceinline__ void write(int column, std::uint32_t token) const {
    Element elements[kEach];
    __builtin_memcpy(elements, &token, sizeof(elements));
#pragma unroll
    for (int i = 0; i < kEach; ++i) at(i, column) = elements[i];
  }
};

// Copies `Unit`s: number i of the warp's lane is at `lane + i` times the steps.
template <class Unit>
__device__ __forceinline__ void copy_units(Unit* to, long long to_step, const Unit* from, long long from_step,
                                           int count) {
  constexpr int kInFlight = 4;
#pragma unroll 1
  for (int i = 0; i < count; i += kInFlight) {
    Unit units[kInFlight];
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      if (i + r < count) units[r] = from[(i + r) * from_step];
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      if (i + r < count) to[(i + r) * to_step] = units[r];
    }
  }
}

// Copies between the state and the warp's shared memory, either way.
struct WarpRows {
  std::uint32_t* shared;
  void* global;             // the warp's first row
  long long column_stride;  // lanes of 32 bits between columns; 0: rows are contiguous
  int columns, lanes, lane;

  __device__ __forceinline__ void load() const { copy<true>(); }
  __device__ __forceinline__ void store() const { copy<false>(); }

 private:
  template <bool IsLoad>
  __device__ __forceinline__ void copy() const {
    if (column_stride == 0) {
      const int words = lanes / 4 * columns, own = (words - lane + 31) / 32;
      Word *const here = reinterpret_cast<Word*>(shared) + lane, *const there = static_cast<Word*>(global) + lane;
      IsLoad ? copy_units(here, 32, there, 32, own) : copy_units(there, 32, here, 32, own);
    } else if (lane < lanes) {
      std::uint32_t *const here = shared + lane, *const there = static_cast<std::uint32_t*>(global) + lane;
      IsLoad ? copy_units(here, 32, there, column_stride, columns)
             : copy_units(there, column_stride, here, 32, columns);
    }
  }
};

template <class Arguments, class Element, int Taps>
__global__ void __launch_bounds__(kLanesThreads, kHasLightChains<Arguments> ? 5 : 8)
    update_rows_kernel(const __grid_constant__ Arguments a) {
  constexpr int kEach = kLaneChannels<Element>, kHistory = Taps - 1;
  constexpr bool kHasChains = kHasLightChains<Arguments>;
  constexpr int kInFlight = kRowTokens<kHasChains>;
  extern __shared__ __align__(16) std::uint32_t shared_rows[];
  const WarpPosition warp = warp_position(a);
  const int lane = static_cast<int>(threadIdx.x % 32), c = warp.channel + lane * kEach;
  const bool has_channels = lane < warp.lanes;
  const long long n = warp.row;
  const int columns = static_cast<int>(a.tensors.columns);
  const Element* const input = a.input + n * a.input_stride + c;
  Element* const output = a.output + n * a.output_stride + c;
  const auto zeros = [&](long long from, long long to) {
    if (!has_channels) return;
#pragma unroll 1
    for (long long t = from; t < to; ++t) store_lane(output + t * a.tensors.output.strides[2], 0);
  };
  await_previous();
  begin_next();
  if (warp.lanes <= 0) return;

  LaneTaps<Element, Taps, kHasChains> taps;
  if (n < a.sequences) {
    fetch_early(a.tensors.starts, n);
    fetch_early(a.tensors.accepted, n);
    fetch_early(a.tensors.lengths, n);
    if (a.tensors.blocks > 0) fetch_early(a.tensors.slots, n);
  }
  if (has_channels) taps.load(a, c);
  const TokenRange before_all = tokens_before(a.tensors, n), behind_all = tokens_behind(a.tensors, n);
  zeros(before_all.first, before_all.last);
  if (n >= a.sequences) return;
  const UpdateSequence s = sequence_of(a.tensors, n);
  zeros(behind_all.first, behind_all.last);
  if (s.slot < 0) zeros(s.token, s.token + s.count);
  if (s.slot < 0 || s.count == 0) return;

  const int count = static_cast<int>(s.count);
  std::uint32_t tokens[kInFlight];
  LaneOperands<Element> before[kInFlight], behind[kInFlight];
  const auto load_tokens = [&](int first) {
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (!has_channels || first + i >= count) continue;
      const long long place = s.token + first + i;
      tokens[i] = load_lane(input + place * a.tensors.input.strides[2]);
      if constexpr (kHasChains) {
        before[i].load(a.pre, n, c, place);
        behind[i].load(a.post, n, c, place);
      }
    }
  };
  load_tokens(0);
  const bool are_rows = a.column_lanes == 0;
  std::uint32_t* const warp_shared = shared_rows + threadIdx.x / 32 * 32 * columns;
  const long long first_row = static_cast<long long>(warp.channel) * (are_rows ? columns : 1);
  const WarpRows moved{warp_shared, a.state + s.slot * a.state_stride + first_row, a.column_lanes, columns, warp.lanes,
                       lane};
  moved.load();
  if (has_channels) taps.unpack(a, c);
  __syncwarp();

  if (has_channels) {
    const SharedRows<Element> rows{reinterpret_cast<Element*>(warp_shared + (are_rows ? lane * columns : lane)),
                                   are_rows ? columns : 1, are_rows ? 1 : 32 * kEach};
    int column = static_cast<int>(s.column(s.target));  // the next token's column; below 0 before `least`
    const int least = static_cast<int>(s.least), end = static_cast<int>(s.columns);
    // One division: a circular history ends at the first token.
    const int first = !s.wraps             ? static_cast<int>(s.first)
                      : column >= kHistory ? column - kHistory
                                           : column - kHistory + columns;
    float history[kEach][kHistory];
#pragma unroll
    for (int j = 0; j < kHistory; ++j) {
      const int from = first + j < columns ? first + j : first + j - columns;
#pragma unroll
      for (int i = 0; i < kEach; ++i) history[i][j] = convert<float>(rows.at(i, from));
    }
    rows.move(static_cast<int>(s.kept), static_cast<int>(s.shift));
    for (int t = 0; t < count; t += kInFlight) {
      if (t > 0) load_tokens(t);
#pragma unroll
      for (int r = 0; r < kInFlight; ++r) {
        if (t + r >= count) break;
        float values[kEach], sums[kEach];
        unpack_lane<Element>(tokens[r], values);
        if constexpr (kHasChains) {
          if (a.pre.count > 0) {
            before[r].run(a.pre, values);
            tokens[r] = pack_lane<Element>(values);
            unpack_lane<Element>(tokens[r], values);
          }
        }
        if (t + r >= least && column < end) rows.write(column, tokens[r]);
        ++column;
        if (s.wraps && column == columns) column = 0;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          sums[i] = taps.bias[i];
#pragma unroll
          for (int k = 0; k < kHistory; ++k) sums[i] = multiply_add(taps.taps[i][k], history[i][k], sums[i]);
          sums[i] = multiply_add(taps.taps[i][kHistory], values[i], sums[i]);
#pragma unroll
          for (int k = 0; k + 1 < kHistory; ++k) history[i][k] = history[i][k + 1];
          history[i][kHistory - 1] = values[i];
        }
        if constexpr (kHasChains) {
          behind[r].run(a.post, sums);
        } else if (a.silu) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) sums[i] = silu_of<Element>(sums[i]);
        }
        store_lane(output + (s.token + t + r) * a.tensors.output.strides[2], pack_lane<Element>(sums));
      }
    }
  }
  __syncwarp();
  moved.store();
}

}  // namespace sluice
