// filter2d's `direct` kernels for 3 x 3 taps on unaligned rows, whose alignment may differ from row to row, and for 3 x
// 3 and 5 x 5 taps on images of bytes. A thread has a strip of one word of columns by many rows, and marches down it as
// march_down_strip (aligned.cuh) does. Image rows are loaded as the aligned words that hold them and shifted in
// registers; result rows are stored as the aligned words that hold them, each with elements of the left neighbour:
//
//    sums             |aaaaaaaa|bbbbbbbb|cccccccc|       strips a, b, c: the same columns in every row
//    words of a row        |aaabbbbb|bbbccccc|           stored by b and by c, whose lanes get the previous lane's sums
//
// A warp's first lane only sums for the second: 31 of its words are stored. Elements at row ends are stored one by
// one.
//
// Strips have the results whose windows are inside the image and off its first and last row (Filter2dInterior): nothing
// is checked there, and words that reach beyond a row hold elements of the same plane. Separate blocks sample the frame
// around them, with any border.
#pragma once

#include "kernels/operators/filter2d/aligned.cuh"
#include "kernels/operators/filter2d/sampled.cuh"

namespace sluice {

// The multiple of a power of two at or below an address; the high half of the address does not change.
template <int Multiple, class Char>
__device__ __forceinline__ Char* round_down(Char* address) {
  return reinterpret_cast<Char*>(reinterpret_cast<std::uintptr_t>(address) &
                                 ~static_cast<std::uintptr_t>(Multiple - 1));
}

// The aligned words under a strip's window of one row, in lanes of 32 bits. A word has as many elements as a strip has
// columns: 16 bytes, or 4 for an image of bytes.
template <class Image, class Element, int Side>
struct UnalignedRow {
  static constexpr int kWidth = kWordElements<Element>, kValues = kWidth + Side - 1;
  static constexpr int kSize = static_cast<int>(sizeof(Image)), kUnit = kWidth * kSize, kUnitLanes = kUnit / 4;
  // Lanes left after whole lanes are shifted out, and one more for the shift within a lane.
  static constexpr int kShifted = ceil_div(kValues * kSize, 4), kTaken = kShifted + (kSize < 4 ? 1 : 0);
  // Lanes of the third word: a window that starts at a word's last element ends in it.
  static constexpr int kThird = ceil_div((kWidth - 1 + kValues) * kSize, 4) - 2 * kUnitLanes;
  static constexpr int kThirdLanes = kThird == 3 ? 4 : kThird;
  std::uint32_t first[kUnitLanes], second[kUnitLanes], third[kThirdLanes];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kUnitLanes; ++i) first[i] = second[i] = 0;
#pragma unroll
    for (int i = 0; i < kThirdLanes; ++i) third[i] = 0;
  }
  __device__ __forceinline__ void load_if(bool exists, const char* window) {
    const char* const at = round_down<kUnit>(window);
    load_lanes_if(exists, at, first);
    load_lanes_if(exists, at + kUnit, second);
    load_lanes_if(exists, at + 2 * kUnit, third);
  }
  // `offset`: the low bits of the window's address.
  template <class T>
  __device__ __forceinline__ void unpack_to(unsigned offset, T (&values)[kValues]) const {
    std::uint32_t lanes[2 * kUnitLanes + kThirdLanes];
#pragma unroll
    for (int i = 0; i < kUnitLanes; ++i) {
      lanes[i] = first[i];
      lanes[kUnitLanes + i] = second[i];
    }
#pragma unroll
    for (int i = 0; i < kThirdLanes; ++i) lanes[2 * kUnitLanes + i] = third[i];
    if constexpr (kUnitLanes == 4) {
      const bool two = (offset & 8) != 0, one = (offset & 4) != 0;
#pragma unroll
      for (int i = 0; i < kTaken + 1; ++i) lanes[i] = two ? lanes[i + 2] : lanes[i];
#pragma unroll
      for (int i = 0; i < kTaken; ++i) lanes[i] = one ? lanes[i + 1] : lanes[i];
    }
    if constexpr (kSize < 4) {
#pragma unroll
      for (int i = 0; i < kShifted; ++i) lanes[i] = __funnelshift_r(lanes[i], lanes[i + 1], (offset & 3) * 8);
    }
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      if constexpr (kSize == 1) {
        // The byte as the low digits of 2^23, exactly: conversions run at a quarter of the rate.
        const unsigned bits = __byte_perm(lanes[i / 4], 0x4b000000u, 0x7440u + i % 4);
        values[i] = __uint_as_float(bits) - 8388608.0f;
      } else if constexpr (kSize == 2) {
        const float2 pair = Pair<Image>::load(lanes[i / 2]);
        values[i] = i % 2 == 0 ? pair.x : pair.y;
      } else {
        values[i] = __uint_as_float(lanes[i]);
      }
    }
  }
};

// The aligned word that holds the last elements of the previous lane and the first elements of `own`, whose address is
// `offset` bytes past a word. `offset` is the same for all lanes of a warp.
__device__ __forceinline__ Word join_words(const Word& own, int offset) {
  if (offset == 0) return own;
  Word before;
#pragma unroll
  for (int i = 0; i < 4; ++i) before.lanes[i] = __shfl_up_sync(0xffffffffu, own.lanes[i], 1);
  return shift_words(before, own, kWordBytes - offset);
}

// Elements first .. last - 1 of a word.
template <class Element>
__device__ __forceinline__ void store_partial(char* to, const Word& word, int first, int last) {
  constexpr int kInLane = 4 / static_cast<int>(sizeof(Element));  // shifts: linked, an array would be in memory
  using Bits = std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint32_t>;
#pragma unroll
  for (int i = 0; i < kWordElements<Element>; ++i) {
    const std::uint32_t bits = word.lanes[i / kInLane] >> (i % kInLane * 16);
    if (first <= i && i < last) reinterpret_cast<Bits*>(to)[i] = static_cast<Bits>(bits);
  }
}

template <class Chains, class Image, int Side, class Element>
__device__ __forceinline__ void march_down_unaligned_strip(const SamplingArguments<Element>& a, std::uint32_t batch,
                                                           std::uint32_t channel, std::uint32_t block) {
  using T = Compute<Element>;
  using Row = UnalignedRow<Image, Element, Side>;
  constexpr int kWidth = Row::kWidth, kLast = Side - 1, kTaps = Side * Side, kAhead = kUnalignedRowsAhead;
  constexpr int kSize = static_cast<int>(sizeof(Image));
  const int lane = threadIdx.x % 32;
  const std::uint32_t warp = block * (kFilter2dThreads / 32) + threadIdx.x / 32;
  const std::uint32_t down = a.by_across.quotient_of_31_bits(warp);
  const int wanted =
      static_cast<int>(warp - down * static_cast<std::uint32_t>(a.by_across.divisor)) * kUnalignedLanes + lane - 1;
  const int words = static_cast<int>(a.strips_across);
  const int word = min_of(wanted, words - 1), column = word * kWidth;
  const int row = a.interior.row + static_cast<int>(down) * a.strip_rows;
  const int rows = min_of(a.strip_rows, a.interior.end_row - row);  // the same for all lanes
  const bool stores = lane > 0 && wanted < words;

  // Taps go through shared memory: a thread's own loads would take the registers of the rows in flight.
  __shared__ alignas(16) T shared_taps[kTaps];
  if (threadIdx.x < kTaps) shared_taps[threadIdx.x] = a.tap(channel, threadIdx.x / Side, threadIdx.x % Side);
  T bias = a.bias_of(channel);
  asm("" : "+f"(bias));  // not in a uniform register: a product reads only one, its tap
  const long long image_pitch = a.image.strides[2] * kSize;
  const char* window = a.image.template as<const char>() +
                       (batch * a.image.strides[0] + channel * a.image.strides[1] +
                        (row - static_cast<int>(a.top)) * a.image.strides[2] + column - static_cast<int>(a.left)) *
                           kSize;
  unsigned offset = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(window));
  Row start[kLast], ring[kAhead];
#pragma unroll
  for (int i = 0; i < kLast + kAhead; ++i) {
    Row& next = i < kLast ? start[i] : ring[i - kLast];
    next.clear();
    next.load_if(i < rows + kLast, window);
    window += image_pitch;
  }
  __syncthreads();
  if (rows <= 0) return;
  MarchingSums<Side, kWidth, T> march(shared_taps, bias);
#pragma unroll
  for (int i = 0; i < kLast; ++i) {
    start[i].unpack_to(offset, march.values);
    offset += static_cast<unsigned>(image_pitch);
    march.move_on(i);
  }

  const typename Chains::Post chain{a.post};
  const int first = a.interior.column - column, last = a.interior.end_column - column;  // columns of results
  // Words that are whole results in every row, and words that may have some.
  const bool inner = stores && first + kWidth <= 1 && last >= kWidth, edge = stores && !inner;
  const long long output_pitch = a.output.strides[2] * static_cast<long long>(sizeof(Element));
  char* output = a.output.template as<char>() +
                 (batch * a.output.strides[0] + channel * a.output.strides[1] + row * a.output.strides[2] + column) *
                     static_cast<long long>(sizeof(Element));
#pragma unroll 1
  for (int y = 0; y < rows; y += kAhead) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      if (y + u >= rows) break;
      ring[u].unpack_to(offset, march.values);
      offset += static_cast<unsigned>(image_pitch);
      ring[u].load_if(y + u + kAhead < rows, window);
      window += image_pitch;
      const auto loads = load_operands<kWidth, 1>(chain, a.post, [&](const long long* strides, int) {
        return Place{
            .offset = batch * strides[0] + channel * strides[1] + (row + y + u) * strides[2] + column * strides[3],
            .stride = strides[3],
            .first = max_of(first, 0),
            .last = min_of(last, kWidth)};
      });
      T results[kWidth];
      march.complete(results);
      chain.template apply<kWidth, 1>(results, loads);
      const int behind = static_cast<int>(reinterpret_cast<std::uintptr_t>(output) & (kWordBytes - 1));
      const Word joined = join_words(pack<Element>(results), behind);
      char* const to = round_down<kWordBytes>(output);
      store_word_if(inner, to, joined);
      if (edge) {
        const int moved = behind / static_cast<int>(sizeof(Element));
        store_partial<Element>(output - behind, joined, first + moved, last + moved);
      }
      output += output_pitch;
      march.move_on();
    }
  }
}

// One result of the frame per thread.
template <class Chains, class Image, class Element>
__device__ __forceinline__ void sample_frame(const SamplingArguments<Element>& a, std::uint32_t batch,
                                             std::uint32_t channel, std::uint32_t block) {
  using T = Compute<Element>;
  constexpr int kWidth = kWordElements<Element>;  // the width that the linker is told
  const long long index = static_cast<long long>(block) * kFilter2dThreads + threadIdx.x;
  const bool exists = index < a.interior.frame(a.output_height, a.output_width);
  const FramePixel at = frame_pixel(a.interior, a.output_height, a.output_width, exists ? index : 0);
  T sum[1] = {a.bias_of(channel)};
  sample_sums<NoChain, 1, Image>(
      a, batch, channel, at.row, at.column, exists, [&](int i, int j) { return a.tap(channel, i, j); },
      [](int) { return T(0); }, sum);
  if (!exists) return;
  T values[kWidth] = {sum[0]};
  const auto place_of = [&](const long long* strides, int) {
    const long long offset = batch * strides[0] + channel * strides[1] + at.row * strides[2] + at.column * strides[3];
    return Place{.offset = offset, .stride = strides[3], .first = 0, .last = 1};
  };
  run_chain<typename Chains::Post, kWidth, 1>(a.post, place_of, values);
  a.output.template as<Element>()[place_of(a.output.strides, 0).offset] = convert<Element>(values[0]);
}

template <class Chains, class Image, int Side, class Element>
__device__ __forceinline__ void unaligned_filter2d(const SamplingArguments<Element>& a) {
  const std::uint32_t plane = a.by_blocks.quotient_of_31_bits(blockIdx.x);
  const std::uint32_t block = blockIdx.x - plane * static_cast<std::uint32_t>(a.by_blocks.divisor);
  const std::uint32_t batch = a.by_channels.quotient_of_31_bits(plane);
  const std::uint32_t channel = plane - batch * static_cast<std::uint32_t>(a.by_channels.divisor);
  if (block < static_cast<std::uint32_t>(a.strip_blocks)) {
    march_down_unaligned_strip<Chains, Image, Side>(a, batch, channel, block);
  } else {
    sample_frame<Chains, Image>(a, batch, channel, block - static_cast<std::uint32_t>(a.strip_blocks));
  }
}

// Without chains, as the aligned kernels.
template <class Element, class Image, int Side>
__global__ void __launch_bounds__(kFilter2dThreads, unaligned_blocks(Side))
    unaligned_filter2d_kernel(const __grid_constant__ SamplingArguments<Element> a) {
  unaligned_filter2d<NoChains, Image, Side>(a);
}

template <class Element>
struct Interpreted<Filter2dKernel::unaligned3, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return unaligned_filter2d_kernel<Element, Element, 3>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_unaligned3, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return unaligned_filter2d_kernel<Element, std::uint8_t, 3>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::bytes_unaligned5, Element> {
  static Kernel<SamplingArguments<Element>> of(const Filter2dParams&) {
    return unaligned_filter2d_kernel<Element, std::uint8_t, 5>;
  }
};

}  // namespace sluice
