// filter2d's automatic kernel for filters of half types with many taps, on tensor cores: the product of conv1d's long
// filters (kernels/shared/mma/toeplitz.h), summed over the rows of the kernel.
//
// A block copies the image under one tile of the output to shared memory, whatever its alignment, layout and border.
// Eight adjacent columns of the output are a group, the 16 groups of a product are a unit, and a warp has two units of
// kToeplitzRows rows: a fragment of the image serves all these rows, and a fragment of taps both units.
//
//   groups of a tile, 4 across     |  0 |  1 |  2 |  3 |       each: 8 columns by kToeplitzRows rows
//                                  |  4 |  5 |  6 |  7 |
//                                  | ...              |        32 of them for each warp, or fewer
//
//   image row i of a group, row r of the kernel  -->  output row i - r
#pragma once

#include "kernels/operators/filter2d/toeplitz_fetch.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

// A warp's sums: a pair of a group's columns in each of two groups of a unit, for each row.
using ToeplitzSums = float[kToeplitzUnits * kToeplitzRows][4];

// Shared addresses that a lane reads.
struct ToeplitzAddresses {
  std::uint32_t image[kToeplitzUnits];  // its row of the units' first fragments
  std::uint32_t taps;                   // its pairs of the kernel's first row
};

// sums += the products of all rows. Steps: of a row of taps; 0 if it is known at run time only. Finite: of what is
// finite in the image.
template <int Steps, bool Finite, class Element>
__device__ __forceinline__ void multiply_rows(const ToeplitzArguments<Element>& a, const ToeplitzAddresses& from,
                                              ToeplitzSums& sums) {
  const int steps = Steps > 0 ? Steps : a.steps;
  const int row_bytes = a.pitch_words * kWordBytes, tap_row_bytes = 2 * tap_copy_bytes(steps);
  std::uint32_t taps = from.taps, rows[kToeplitzUnits];
#pragma unroll
  for (int u = 0; u < kToeplitzUnits; ++u) rows[u] = from.image[u];
#pragma unroll 1
  for (int i = 0; i < a.kernel_height + kToeplitzRows - 1; ++i) {
    const auto multiply_step = [&](int s) {
      std::uint32_t image[kToeplitzUnits][4];
#pragma unroll
      for (int u = 0; u < kToeplitzUnits; ++u) {
        load_matrices(rows[u] + s * kStepBytes<Element>, image[u]);
        if constexpr (Finite) {
#pragma unroll
          for (int j = 0; j < 4; ++j) image[u][j] = finite_or_zero<Element>(image[u][j]);
        }
      }
#pragma unroll
      for (int o = 0; o < kToeplitzRows; ++o) {
        if (static_cast<unsigned>(i - o) >= static_cast<unsigned>(a.kernel_height)) continue;  // no such row of taps
        const uint2 pairs = load_shared_pairs(taps - o * tap_row_bytes + s * kStepBytes<Element>);
#pragma unroll
        for (int u = 0; u < kToeplitzUnits; ++u) {
          multiply_add<Element>(sums[u * kToeplitzRows + o], image[u], pairs);
        }
      }
    };
    if constexpr (Steps > 0) {
#pragma unroll
      for (int s = 0; s < Steps; ++s) multiply_step(s);
    } else {
#pragma unroll 1
      for (int s = 0; s < steps; ++s) multiply_step(s);
    }
    taps += tap_row_bytes;
#pragma unroll
    for (int u = 0; u < kToeplitzUnits; ++u) rows[u] += row_bytes;
  }
}

// A group of the tile. One beyond the last has no results, and the first one's place.
struct ToeplitzGroup {
  int down, across;
  bool exists;

  template <class Element>
  __device__ __forceinline__ ToeplitzGroup(const ToeplitzArguments<Element>& a, int index) {
    exists = index < a.groups_down * a.lanes;
    index = exists ? index : 0;
    down = static_cast<int>(a.by_lanes.quotient_of_31_bits(index));
    across = index - down * a.lanes;
  }
};

// A lane's pair of columns in rows row .. row + kToeplitzRows - 1; rows that exist, and columns.
struct ToeplitzPlace {
  long long batch, channel, row, column;
  int rows, columns;
};

template <class Element>
__device__ __forceinline__ ToeplitzPlace place_of_group(const ToeplitzArguments<Element>& a, const Filter2dTile& tile,
                                                        int index, int lane) {
  const ToeplitzGroup group(a, index);
  ToeplitzPlace place{tile.batch,
                      tile.channel,
                      tile.row + group.down * kToeplitzRows,
                      tile.column + group.across * kVectorOutputs + lane % 4 * 2,
                      0,
                      0};
  place.rows = static_cast<int>(min_of<long long>(kToeplitzRows, a.output_height - place.row));
  place.columns = group.exists ? static_cast<int>(min_of<long long>(2, a.output_width - place.column)) : 0;
  return place;
}

// Group `part` % 2 of a lane in unit `part` / 2.
__device__ __forceinline__ int group_of(int warp, int lane, int part) {
  return (warp * kToeplitzUnits + part / 2) * kUnitGroups + part % 2 * 8 + lane / 4;
}

template <class Post, class Element>
__device__ __forceinline__ void finish_group(const ToeplitzArguments<Element>& a, const ToeplitzPlace& place,
                                             float (&values)[2 * kToeplitzRows]) {
  if (place.columns <= 0) return;
  const auto place_of = [&](const long long* strides, int r) {
    return Place{.offset = place.batch * strides[0] + place.channel * strides[1] + (place.row + r) * strides[2] +
                           place.column * strides[3],
                 .stride = strides[3],
                 .first = 0,
                 .last = r < place.rows ? place.columns : 0};
  };
  if constexpr (std::is_same_v<Post, NoChain>) {
    Element* to = a.output.template as<Element>() + place_of(a.output.strides, 0).offset;
    const long long pitch = a.output.strides[2];
    const bool in_pairs = a.output.strides[3] == 1 && (reinterpret_cast<std::uintptr_t>(to) & 3) == 0 && pitch % 2 == 0;
    if (in_pairs && place.columns == 2) {
#pragma unroll
      for (int r = 0; r < kToeplitzRows; ++r, to += pitch) {
        if (r < place.rows) store_vector<Element, 2>(to, values + 2 * r);
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < kToeplitzRows; ++r, to += pitch) {
      if (r >= place.rows) break;
      to[0] = convert<Element>(values[2 * r]);
      if (place.columns == 2) to[a.output.strides[3]] = convert<Element>(values[2 * r + 1]);
    }
  } else {
    finish_slices<Post, 2, kToeplitzRows>(a.post, a.output, a.output_type(), place_of, values);
  }
}

template <class Post, class Element>
__device__ __forceinline__ void finish_groups(const ToeplitzArguments<Element>& a, const Filter2dTile& tile, int warp,
                                              int lane, const ToeplitzSums& sums) {
  constexpr int kParts = 2 * kToeplitzUnits;
  const auto finish = [&](int part, float (&values)[2 * kToeplitzRows]) {
    finish_group<Post>(a, place_of_group(a, tile, group_of(warp, lane, part), lane), values);
  };
  const auto take = [&](int part, float (&values)[2 * kToeplitzRows]) {
#pragma unroll
    for (int i = 0; i < 2 * kToeplitzRows; ++i) {
      values[i] = sums[part / 2 * kToeplitzRows + i / 2][part % 2 * 2 + i % 2];
    }
  };
  if constexpr (std::is_same_v<Post, NoChain>) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      float values[2 * kToeplitzRows];
      take(part, values);
      finish(part, values);
    }
  } else {
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      float values[2 * kToeplitzRows];
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        if (p == part) take(p, values);  // registers cannot be indexed: the chain is compiled once
      }
      finish(part, values);
    }
  }
}

// A warp's results where some pixel may be infinite or NaN: the taps' zeros turn it into NaN in outputs whose windows
// do not have it. Sums are of what is finite, unless the sum over the output's own window is not. Out of line, because
// it needs the registers of the other sums.
template <class Post, class Element>
__device__ __noinline__ void finish_within_windows(const ToeplitzArguments<Element>& a, const Filter2dTile& tile,
                                                   const ToeplitzAddresses& from, std::uint32_t image, int warp,
                                                   int lane) {
  const float bias = a.bias_of(tile.channel);
  ToeplitzSums sums;
#pragma unroll
  for (auto& row : sums) row[0] = row[1] = row[2] = row[3] = bias;
  multiply_rows<0, true>(a, from, sums);
  const auto* const pixels = static_cast<const Element*>(__cvta_shared_to_generic(image));
  const int pitch = a.pitch_words * kWordElements<Element>;
#pragma unroll
  for (int i = 0; i < 4 * kToeplitzUnits * kToeplitzRows; ++i) {
    const int unit = i / 4 / kToeplitzRows, row = i / 4 % kToeplitzRows, part = 2 * unit + i % 4 / 2;
    const ToeplitzGroup group(a, group_of(warp, lane, part));
    const Element* const window =
        pixels + (group.down * kToeplitzRows + row) * pitch + group.across * kVectorOutputs + lane % 4 * 2 + i % 2;
    float exact = bias;
#pragma unroll 1
    for (int k = 0; k < a.kernel_height; ++k) {
#pragma unroll 1
      for (int j = 0; j < a.kernel_width; ++j) {
        exact = multiply_add(a.tap(tile.channel, k, j), convert<float>(window[k * pitch + j]), exact);
      }
    }
    float& sum = sums[i / 4][i % 4];
    sum = is_finite(exact) ? sum : exact;
  }
  finish_groups<Post>(a, tile, warp, lane, sums);
}

template <class Chains, class Element>
__device__ __forceinline__ void toeplitz_filter2d(const ToeplitzArguments<Element>& a) {
  extern __shared__ Word shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int tile_rows = a.groups_down * kToeplitzRows, tile_columns = a.lanes * kVectorOutputs;
  const Filter2dTile tile = tile_of_block(a, tile_rows, tile_columns);
  const auto image = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int rows = static_cast<int>(min_of<long long>(tile_rows, a.output_height - tile.row));
  const TileCorner corner{tile.batch,
                          tile.channel,
                          tile.row - a.top,
                          tile.column - a.left,
                          rows + a.kernel_height - 1,
                          round_up(rows, kToeplitzRows) + a.kernel_height - 1};
  fetch_kernel(a, tile.channel, reinterpret_cast<char*>(shared + a.stage_words));
  fetch_tile<typename Chains::Pre>(a, corner, image);
  __syncthreads();

  ToeplitzAddresses from;
#pragma unroll
  for (int u = 0; u < kToeplitzUnits; ++u) {
    ToeplitzGroup group(a, (warp * kToeplitzUnits + u) * kUnitGroups + lane % kUnitGroups);
    // Groups below the last row have no rows in shared memory.
    if (group.down * kToeplitzRows >= rows) group.down = 0;
    from.image[u] =
        image + (group.down * kToeplitzRows * a.pitch_words + group.across + lane / kUnitGroups) * kWordBytes;
  }
  from.taps = image + a.stage_words * kWordBytes + tap_pair_byte(lane, 0, a.steps);
  if (warp * kToeplitzUnits * kUnitGroups >= ceil_div(rows, kToeplitzRows) * a.lanes)
    return;  // none of its rows exists
  const float bias = a.bias_of(tile.channel);
  ToeplitzSums sums;
#pragma unroll
  for (auto& row : sums) row[0] = row[1] = row[2] = row[3] = bias;
  switch (a.steps) {
    case 1: multiply_rows<1, false>(a, from, sums); break;
    case 2: multiply_rows<2, false>(a, from, sums); break;
    default: multiply_rows<0, false>(a, from, sums);
  }
  if (__any_sync(0xffffffffu, is_any_infinite(sums))) {
    finish_within_windows<typename Chains::Post>(a, tile, from, image, warp, lane);
  } else {
    finish_groups<typename Chains::Post>(a, tile, warp, lane, sums);
  }
}

// Without chains, with results of the image's dtype.
template <class Element>
__global__ void __launch_bounds__(kFilter2dThreads, kToeplitzBlocks)
    plain_toeplitz_filter2d_kernel(const __grid_constant__ ToeplitzArguments<Element> a) {
  toeplitz_filter2d<NoChains>(a);
}

template <class Element>
__global__ void __launch_bounds__(kFilter2dThreads, kToeplitzBlocks)
    toeplitz_filter2d_kernel(const __grid_constant__ ToeplitzArguments<Element> a) {
  toeplitz_filter2d<ElementwiseFilter2dChains<Element>>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::toeplitz, Element> {
  static Kernel<ToeplitzArguments<Element>> of(const Filter2dParams& params) {
    return is_plain(params) ? plain_toeplitz_filter2d_kernel<Element> : toeplitz_filter2d_kernel<Element>;
  }
};

}  // namespace sluice
