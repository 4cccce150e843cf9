// filter2d's `direct` kernels for 3 x 3 and 5 x 5 taps where rows of image and result are whole words in the same
// columns. A thread has a strip: one word of columns by some rows. Its halo is a lane or two of the adjacent words,
// which hit the L1 cache.
//
//    image row     ...xx|vvvvvvvv|xx...      v: the strip's word; x: Side / 2 columns of the adjacent words
//
// Threads continue from one line of strips to the next, so few idle at any plane width. Blocks stay within a plane: its
// taps are the same for all their threads.
//
//    rows 0 .. 7    |  0 |  1 |  2 |  3 |  4 |      blocks of 4 threads on a plane of 5 words by 2 strips:
//    rows 8 .. 15   |  5 |  6 |  7 |  8 |  9 |      0 1 2 3, 4 5 6 7, 8 9
//
// Sums are in the other kernels' order (patch.cuh), so results have the same bits.
#pragma once

#include "kernels/operators/filter2d/arguments.cuh"
#include "kernels/shared/stages/epilogue.cuh"
#include "kernels/shared/stages/no_chain.cuh"

namespace sluice {

struct Strip {
  long long batch, channel;  // the same for the whole block
  int word, row, rows;       // its word of each row; its first row, and the rows that the output has
  bool has_left, has_right;  // adjacent words

  __device__ bool empty() const { return rows <= 0; }
};

template <class Element>
__device__ __forceinline__ Strip strip_at(const Filter2dArguments<Element>& a, int rows) {
  const auto remainder = [](std::uint32_t index, const FastDivisor& divisor, std::uint32_t quotient) {
    return index - quotient * static_cast<std::uint32_t>(divisor.divisor);
  };
  const std::uint32_t plane = a.by_blocks.quotient_of_31_bits(blockIdx.x);
  const std::uint32_t index = remainder(blockIdx.x, a.by_blocks, plane) * blockDim.x + threadIdx.x;
  const std::uint32_t down = a.by_across.quotient_of_31_bits(index),
                      words = static_cast<std::uint32_t>(a.by_across.divisor);
  const std::uint32_t batch = a.by_channels.quotient_of_31_bits(plane);
  Strip strip{
      batch, remainder(plane, a.by_channels, batch), static_cast<int>(remainder(index, a.by_across, down)), 0, 0, 0, 0};
  strip.row = static_cast<int>(down) * rows;
  strip.rows = min_of(rows, static_cast<int>(a.output_height) - strip.row);
  strip.has_left = strip.word > 0;
  strip.has_right = strip.word + 1 < static_cast<int>(words);
  return strip;
}

// A word of the image, and the 32-bit lanes of the adjacent words that a kernel of `Side` columns reads.
template <class Element, int Side>
struct WordWithHalo {
  static constexpr int kWidth = kWordElements<Element>, kReach = Side / 2, kValues = kWidth + Side - 1;
  static constexpr int kLanes = ceil_div(kReach * static_cast<int>(sizeof(Element)), 4);
  Word word;
  std::uint32_t left[kLanes], right[kLanes];

  __device__ __forceinline__ void clear() {
    word = Word{};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) left[i] = right[i] = 0;
  }
  // For rows that are all loaded before the first store, so the compiler may reorder the loads. Lanes outside the image
  // stay the zeros of clear().
  __device__ __forceinline__ void load(const char* at, const Strip& strip) {
    const uint4 bits = __ldg(reinterpret_cast<const uint4*>(at));
    word = Word{{bits.x, bits.y, bits.z, bits.w}};
    if (strip.has_left) load_lanes(at - kLanes * 4, left);
    if (strip.has_right) load_lanes(at + kWordBytes, right);
  }
  // For rows that are loaded between stores, in this order; only where `exists`.
  __device__ __forceinline__ void load_if(bool exists, const char* at, const Strip& strip) {
    load_lanes_if(exists, at, word.lanes);
    load_lanes_if(exists & strip.has_left, at - kLanes * 4, left);
    load_lanes_if(exists & strip.has_right, at + kWordBytes, right);
  }
  // The columns from the strip's first tap to its last.
  template <class T>
  __device__ __forceinline__ void unpack_to(T (&values)[kValues]) const {
    if constexpr (sizeof(Element) == 2) {
      const float2 before = Pair<Element>::load(left[0]), behind = Pair<Element>::load(right[0]);
      if constexpr (kReach == 2) values[0] = before.x;
      values[kReach - 1] = before.y;
      values[kReach + kWidth] = behind.x;
      if constexpr (kReach == 2) values[kReach + kWidth + 1] = behind.y;
    } else {
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        values[i] = __uint_as_float(left[i]);
        values[kReach + kWidth + i] = __uint_as_float(right[i]);
      }
    }
    unpack<Element>(word, values + kReach);
  }

 private:
  __device__ __forceinline__ static void load_lanes(const char* at, std::uint32_t (&lanes)[kLanes]) {
    static_assert(kLanes <= 2);
    if constexpr (kLanes == 1) {
      lanes[0] = __ldg(reinterpret_cast<const unsigned*>(at));
    } else {
      const uint2 bits = __ldg(reinterpret_cast<const uint2*>(at));
      lanes[0] = bits.x;
      lanes[1] = bits.y;
    }
  }
};

// Addresses of a strip's rows.
template <class Element>
struct StripRows {
  const char* image;  // place under the first tap of the strip's first row; not read outside the image
  char* output;
  long long image_pitch, output_pitch;  // bytes from a row to the next
  int first, height;                    // index of that row, and the rows that the image has

  __device__ StripRows(const Filter2dArguments<Element>& a, const Strip& strip)
      : image_pitch(a.image.strides[2] * static_cast<long long>(sizeof(Element))),
        output_pitch(a.output.strides[2] * static_cast<long long>(size_of(a.output_type()))),
        first(strip.row - static_cast<int>(a.top)),
        height(static_cast<int>(a.height)) {
    const auto plane = [&](const long long* strides) { return strip.batch * strides[0] + strip.channel * strides[1]; };
    const long long output_size = size_of(a.output_type());
    image = a.image.template as<const char>() + plane(a.image.strides) * static_cast<long long>(sizeof(Element)) +
            first * image_pitch + strip.word * kWordBytes;
    output = a.output.template as<char>() + plane(a.output.strides) * output_size + strip.row * output_pitch +
             strip.word * (kWordElements<Element> * output_size);
  }
  __device__ bool has(int i) const { return static_cast<unsigned>(first + i) < static_cast<unsigned>(height); }
};

template <int Side, class Element, class T>
__device__ __forceinline__ void load_square(const Filter2dArguments<Element>& a, long long channel,
                                            T (&taps)[Side * Side]) {
#pragma unroll
  for (int t = 0; t < Side * Side; ++t) taps[t] = a.tap(channel, t / Side, t % Side);
}

// A row of taps on `values`: out = in + the products.
template <int Side, int Columns, class T>
__device__ __forceinline__ void add_tap_row(const T* taps, const T (&values)[Columns + Side - 1], const T* in, T* out) {
#pragma unroll
  for (int k = 0; k < Side; ++k) {
#pragma unroll
    for (int j = 0; j < Columns; ++j) out[j] = multiply_add(taps[k], values[k + j], k == 0 ? in[j] : out[j]);
  }
}

// Places of a word of each of the strip's `rows` rows from `row` on, in a tensor of the result's shape.
template <class Element>
__device__ __forceinline__ auto places_of(const Strip& strip, int row, int rows) {
  return [&strip, row, rows](const long long* strides, int r) {
    const long long offset = strip.batch * strides[0] + strip.channel * strides[1] +
                             (strip.row + row + r) * strides[2] + strip.word * kWordElements<Element> * strides[3];
    return Place{.offset = offset, .stride = strides[3], .first = 0, .last = r < rows ? kWordElements<Element> : 0};
  };
}

// Out: the output's type; void: any.
template <class Out, class Element, class T>
__device__ __forceinline__ void store_columns(const Filter2dArguments<Element>& a, char* to, const T* values) {
  if constexpr (std::is_void_v<Out>) {
    with_element_type(a.output_type(), [&](auto* tag) {
      store_columns<std::remove_cv_t<std::remove_pointer_t<decltype(tag)>>>(a, to, values);
    });
  } else {
    store_vector<Out, kWordElements<Element>>(reinterpret_cast<Out*>(to), values);
  }
}

// A strip of few rows: all its inputs are loaded up front.
template <class Chains, int Side, class Out, class Element>
__device__ __forceinline__ void filter_strip(const Filter2dArguments<Element>& a) {
  using T = Compute<Element>;
  using Halo = WordWithHalo<Element, Side>;
  constexpr int kWidth = Halo::kWidth, kRows = kStripRows<Element>, kInputs = kRows + Side - 1;
  static_assert(kRows % kChainRows == 0);
  const Strip strip = strip_at(a, kRows);
  if (strip.empty()) return;
  const StripRows<Element> rows(a, strip);
  Halo inputs[kInputs];
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    inputs[i].clear();
    if (rows.has(i)) inputs[i].load(rows.image + i * rows.image_pitch, strip);
  }
  T taps[Side * Side], sums[kRows][kWidth];
  load_square<Side>(a, strip.channel, taps);
  const T bias = a.bias_of(strip.channel);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[r][j] = bias;
  }
#pragma unroll
  for (int i = 0; i < kInputs; ++i) {
    T values[Halo::kValues];
    inputs[i].unpack_to(values);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (0 <= i - r && i - r < Side) add_tap_row<Side, kWidth>(taps + (i - r) * Side, values, sums[r], sums[r]);
    }
    const int complete = i - (Side - 1) - (kChainRows - 1);  // the first of kChainRows rows that are complete now
    if (complete < 0 || complete % kChainRows != 0) continue;
    T results[kChainRows * kWidth];
#pragma unroll
    for (int j = 0; j < kChainRows * kWidth; ++j) results[j] = sums[complete + j / kWidth][j % kWidth];
    run_chain<typename Chains::Post, kWidth, kChainRows>(
        a.post, places_of<Element>(strip, complete, strip.rows - complete), results);
#pragma unroll
    for (int r = 0; r < kChainRows; ++r) {
      if (complete + r < strip.rows)
        store_columns<Out>(a, rows.output + (complete + r) * rows.output_pitch, results + r * kWidth);
    }
  }
}

// Sums of a strip whose image rows come one after another. sums[k] is the output row that meets row k of the kernel
// next; its products with one image row move it to sums[k + 1].
//
//    row i of the image:    output row i - 4 = sums[4] + taps of row 4, which is stored
//                           sums[4]          = sums[3] + taps of row 3
//                           ...
//                           sums[1]          = sums[0] + taps of row 0, where sums[0] is the bias
template <int Side, int Columns, class T>
struct MarchingSums {
  static constexpr int kLast = Side - 1;
  T taps[Side * Side], sums[Side][Columns];
  T values[Columns + Side - 1];  // values of the row of the image

  __device__ __forceinline__ MarchingSums(const T* shared_taps, T bias) {
#pragma unroll
    for (int t = 0; t < Side * Side; ++t) taps[t] = shared_taps[t];
#pragma unroll
    for (int k = 0; k < Side; ++k) {
#pragma unroll
      for (int j = 0; j < Columns; ++j) sums[k][j] = bias;
    }
  }
  // The output row that this image row completes.
  __device__ __forceinline__ void complete(T* results) { add(kLast, results); }
  // The other output rows with `meets(k)`, from the row that meets row `from` of the kernel down.
  template <class Meets>
  __device__ __forceinline__ void move_on(int from, const Meets& meets) {
#pragma unroll
    for (int k = from; k >= 0; --k) {
      if (meets(k)) add(k, sums[k + 1]);
    }
  }
  __device__ __forceinline__ void move_on(int from = kLast - 1) {
    move_on(from, [](int) { return true; });
  }

 private:
  __device__ __forceinline__ void add(int k, T* out) {
    add_tap_row<Side, Columns>(taps + k * Side, values, sums[k], out);
  }
};

// A strip of any number of rows, one after another, each loaded ahead of its use.
//
// Three loops: the rows before the first output, all in flight at once with those ahead and the taps, so that a start
// costs one latency; rows without checks; and the last rows, where each row of taps and each load is checked.
template <class Chains, int Side, class Out, class Element>
__device__ __forceinline__ void march_down_strip(const Filter2dArguments<Element>& a) {
  using T = Compute<Element>;
  using Halo = WordWithHalo<Element, Side>;
  constexpr int kWidth = Halo::kWidth, kLast = Side - 1, kTaps = Side * Side, kAhead = kRowsAhead<Element>;
  // Floats are summed from the registers they were loaded to, which the next row cannot use yet.
  constexpr int kRowsInFlight = kAhead + (sizeof(Element) == sizeof(T) ? 1 : 0),
                kUnrolled = kRowsInFlight < 2 ? 2 : kRowsInFlight;
  static_assert(kUnrolled % kRowsInFlight == 0);  // a row's registers are known at compile time
  const Strip strip = strip_at(a, a.strip_rows);
  StripRows<Element> rows(a, strip);
  // A warp may have strips of two lines, and loops over the rows of the longer one. Before `limit`, for all lanes, rows
  // are not a strip's last and the rows loaded are inside the image.
  constexpr unsigned kWarp = 0xffffffffu;
  const int most_rows = __reduce_max_sync(kWarp, strip.rows);
  const int end = min_of(rows.height - rows.first, most_rows + kLast);  // image rows that exist and are used
  const int limit = __reduce_min_sync(
      kWarp, strip.empty() ? most_rows : min_of(strip.rows - kLast, rows.height - rows.first - kLast - kAhead));

  // Taps go through shared memory: 25 loads a thread would take the registers of the rows in flight.
  __shared__ alignas(16) T shared_taps[kTaps];
  const int own = min_of(static_cast<int>(threadIdx.x), kTaps - 1);
  const T own_tap = a.tap(strip.channel, own / Side, own % Side);
  T bias = a.bias_of(strip.channel);
  asm("" : "+f"(bias));  // not in a uniform register: a product reads only one, its tap
  Halo start[kLast], ring[kRowsInFlight];
#pragma unroll
  for (int i = 0; i < kLast + kRowsInFlight; ++i) {
    Halo& row = i < kLast ? start[i] : ring[i - kLast];
    row.clear();
    if (i >= kLast + kAhead) continue;
    row.load_if(rows.has(i) & !strip.empty(), rows.image, strip);
    rows.image += rows.image_pitch;
  }
  __syncwarp();  // all loads are issued before waiting for the tap
  if (threadIdx.x < kTaps) shared_taps[threadIdx.x] = own_tap;
  __syncthreads();
  if (strip.empty()) return;
  MarchingSums<Side, kWidth, T> march(shared_taps, bias);
  const typename Chains::Post chain{a.post};
  const auto finish_row = [&](int row, bool exists) {
    const auto loads = load_operands<kWidth, 1>(chain, a.post, places_of<Element>(strip, row, exists));
    T results[kWidth];
    march.complete(results);
    chain.template apply<kWidth, 1>(results, loads);
    if (exists) store_columns<Out>(a, rows.output, results);
    rows.output += rows.output_pitch;
  };
#pragma unroll
  for (int i = 0; i < kLast; ++i) {
    start[i].unpack_to(march.values);
    march.move_on(i);
  }
  int row = 0;  // row of the output
#pragma unroll 1
  for (; row + kUnrolled <= limit; row += kUnrolled) {
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      ring[u % kRowsInFlight].unpack_to(march.values);
      ring[(u + kAhead) % kRowsInFlight].load_if(true, rows.image, strip);
      rows.image += rows.image_pitch;
      finish_row(row + u, true);
      march.move_on();
    }
  }
#pragma unroll 1
  for (; row < most_rows; ++row) {
    ring[0].unpack_to(march.values);
#pragma unroll
    for (int s = 1; s < kAhead; ++s) ring[s - 1] = ring[s];
    const int next = row + kLast + kAhead;
    ring[kAhead - 1].clear();
    ring[kAhead - 1].load_if(next < end, rows.image, strip);
    rows.image += rows.image_pitch;
    finish_row(row, row < strip.rows);
    march.move_on(kLast - 1, [&](int k) { return row + kLast - k < most_rows; });
  }
}

template <class Chains, int Side, class Out, class Element>
__device__ __forceinline__ void aligned_filter2d(const Filter2dArguments<Element>& a) {
  if constexpr (Side == 3) {
    filter_strip<Chains, Side, Out>(a);
  } else {
    march_down_strip<Chains, Side, Out>(a);
  }
}

// Without chains: a chain that is not linked runs in the patches' kernels.
template <class Element, int Side, class Out>
__global__ void __launch_bounds__(kFilter2dThreads, aligned_blocks(Side, kDType<Element>, std::is_void_v<Out>))
    aligned_filter2d_kernel(const __grid_constant__ Filter2dArguments<Element> a) {
  aligned_filter2d<NoChains, Side, Out>(a);
}

template <class Element, int Side>
struct InterpretedAligned {
  static Kernel<Filter2dArguments<Element>> of(const Filter2dParams& params) {
    return params.image.dtype == params.output.dtype ? aligned_filter2d_kernel<Element, Side, Element>
                                                     : aligned_filter2d_kernel<Element, Side, void>;
  }
};
template <class Element>
struct Interpreted<Filter2dKernel::aligned3, Element> : InterpretedAligned<Element, 3> {};
template <class Element>
struct Interpreted<Filter2dKernel::aligned5, Element> : InterpretedAligned<Element, 5> {};

}  // namespace sluice
