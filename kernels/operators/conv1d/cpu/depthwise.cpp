// Windows of a row: taps whose positions are equal modulo the stride read one residue of the row, every stride-th
// position. With stride 2 and dilation 1:
//
//   input            0 1 2 3 4 5 6 7 8
//   residue 0        0   2   4   6   8     taps 0, 2, 4 begin at its elements 0, 1, 2
//   residue 1          1   3   5   7       taps 1, 3
//
// so that a tap's values for adjacent outputs are contiguous. A row is first copied into a panel, a cell for each
// element (and, across channels, for each channel of it): converted once for all taps, strided, put through `pre` and
// padded. With stride 1 the row itself is the only residue; if it is long and has few taps, it is read in place.
#include "kernels/operators/conv1d/cpu/depthwise.h"

#include "kernels/shared/common/int_math.h"
#include "kernels/shared/cpu/elements.h"
#include "kernels/shared/cpu/scratch.h"
#include "kernels/shared/cpu/tap_sums.h"
#include "kernels/shared/stages/cpu/chain.h"

namespace sluice {
namespace {

// With more taps, the input's rows compete for the same lines of the L1 cache, so a copy is read instead.
constexpr int kDirectChannelTaps = 8;
// The same along a row, where each tap converts what it reads; and the fewest outputs whose windows are inside the row.
// Fewer outputs pay more for the row's edges, summed one by one, than for a copy: 64 outputs of 7 taps took 1.20 ns
// each, 0.62 with the copy, 512 took 0.27 and 0.25, 2048 of bfloat16 with 31 taps 1.02 and 0.92. A copy of long rows
// with 4 taps lost 15 % in float32 larger than the caches, 13 % in bfloat16 within them.
template <class T, class Element>
inline constexpr int kDirectTaps = std::is_same_v<T, Element> ? 8 : 4;
constexpr long long kFewestDirect = 1024;
constexpr long long kKeptWeights = 16 * 1024;

struct Residues {
  long long stride, dilation;
  int count;        // residues
  long long apart;  // elements of a residue from one of its taps to the next
  int taps;

  explicit Residues(const Conv1dTensors& p) : stride(p.stride), dilation(p.dilation), taps(p.taps) {
    long long divisor = stride, rest = dilation % stride;
    while (rest != 0) {
      const long long next = divisor % rest;
      divisor = rest;
      rest = next;
    }
    count = static_cast<int>(min_of<long long>(taps, stride / divisor));
    apart = stride / divisor * dilation / stride;
  }
  // Elements of a residue that `outputs` consecutive outputs read.
  long long length(int residue, long long outputs) const { return outputs + (taps - 1 - residue) / count * apart; }
  long long cells(long long outputs) const {
    long long all = 0;
    for (int s = 0; s < count; ++s) all += length(s, outputs);
    return all;
  }
};

// Whether `post` reads memory that the result overwrites.
bool reads_output(const Conv1dParams& p) {
  bool reads = false;
  for (int k = 0; k < p.post.operands; ++k) reads = reads || p.post_operands[k].data == p.output.data;
  return reads;
}

// Outputs [begin, end) of one tile.
struct OutputRange {
  long long begin, end;
  long long count() const { return end - begin; }
};

// Element: of the input, as the sums read it.
template <class T, class Element>
class Depthwise {
 public:
  Depthwise(const Conv1dParams& params, const DepthwiseTiles& tiles)
      : p_(params),
        tiles_(tiles),
        residues_(params),
        walked_(tiles.across_channels ? 1 : 2),
        pre_(params.pre, params.pre_operands, walked_, tiles.across_channels ? 1 : params.stride),
        post_(params.post, params.post_operands, walked_),
        offsets_(offset_memory_.allocate(2 * params.taps)),
        direct_offsets_(offsets_ + params.taps),
        input_(params.input.template as<Element>()),
        same_dtype_(params.output.dtype == params.input.dtype),
        straight_(params.post.empty() && same_dtype_ && params.output.strides[walked_] == 1),
        fits_output_(straight_ || (std::is_same_v<T, Element> && same_dtype_ && params.output.strides[2] == 1 &&
                                   !reads_output(params))),
        direct_(kReadsDirectly<Element> && params.pre.empty() && params.input.strides[walked_] == 1 &&
                (tiles.across_channels ? params.multiplier == 1 && params.taps <= kDirectChannelTaps
                                       : params.stride == 1 && params.taps <= kDirectTaps<T, Element>)) {
    for (int k = 0; k < p_.taps; ++k) direct_offsets_[k] = k * p_.dilation * p_.input.strides[2];
    if (!tiles.across_channels && params.channels * params.taps <= kKeptWeights) load_all_weights();
  }

  void run(long long tile) {
    const long long t = tile % tiles_.position_tiles * tiles_.positions, row = tile / tiles_.position_tiles;
    const OutputRange whole{t, min_of(t + tiles_.positions, p_.output_length)};
    if (tiles_.across_channels) {  // channels outermost: tiles in a row share their weights
      const long long b = row % p_.batch, c = row / p_.batch * tiles_.channels;
      run_channels(b, c, static_cast<int>(min_of(tiles_.channels, p_.channels - c)), whole);
    } else {
      run_rows(row / tiles_.channel_tiles, row % tiles_.channel_tiles * tiles_.channels, whole);
    }
  }

 private:
  // Calls `load(position, elements, cell)` for each span of a residue inside the input, and `history(position, cell)`
  // or `zeros(cell, elements)` outside.
  template <class Load, class History, class Zeros>
  void walk_residues(long long begin, long long outputs, const Load& load, const History& history, const Zeros& zeros) {
    long long cell = 0;
    for (int s = 0; s < residues_.count; ++s) {
      const long long length = residues_.length(s, outputs);
      const long long start = begin * p_.stride + s * p_.dilation - p_.padding;
      const auto elements_before = [&](long long position) {
        return position <= start ? 0 : min_of(length, ceil_div(position - start, p_.stride));
      };
      const long long from = elements_before(0), to = elements_before(p_.length);
      if (p_.history.exists()) {
        for (long long i = 0; i < from; ++i) history(start + i * p_.stride, cell + i);
      } else if (from > 0) {
        zeros(cell, from);
      }
      if (to > from) load(start + from * p_.stride, to - from, cell + from);
      if (length > to) zeros(cell + to, length - to);
      cell += length;
    }
  }

  // offsets[k]: the start of tap k in the copy.
  void place_taps(long long outputs, long long pitch) {
    long long start = 0;
    for (int s = 0; s < residues_.count; ++s) {
      for (int k = s, i = 0; k < p_.taps; k += residues_.count, ++i) {
        offsets_[k] = (start + i * residues_.apart) * pitch;
      }
      start += residues_.length(s, outputs);
    }
  }

  long long place(const long long* strides, long long b, long long c, long long t) const {
    return b * strides[0] + c * strides[1] + t * strides[2];
  }

  // --- along a row ---

  void run_rows(long long b, long long first_channel, const OutputRange& whole) {
    const long long c = first_channel / p_.multiplier;
    const long long begin = max_of(whole.begin, p_.padding);
    const long long end = min_of(whole.end, p_.length - (p_.taps - 1) * p_.dilation + p_.padding);
    if (direct_ && end - begin >= kFewestDirect) {
      for (int m = 0; m < p_.multiplier; ++m) sum_directly(b, first_channel + m, c, whole, {begin, end});
      return;
    }
    const T* const copy = copy_row(b, c, whole.begin, round_up<long long>(whole.count(), kLanes<T>));
    for (int m = 0; m < p_.multiplier; ++m) sum_copy(b, first_channel + m, copy, whole);
  }

  // `inner`: the tile's outputs whose windows are inside the input.
  void sum_directly(long long b, long long c, long long input_channel, const OutputRange& whole,
                    const OutputRange& inner) {
    const Taps<T> taps{p_.taps, direct_offsets_, weights_of(c), 0};
    const T bias = bias_of(c);
    const Element* const input = input_ + place(p_.input.strides, b, input_channel, inner.begin - p_.padding);
    in_blocks(b, c, whole, [&](auto* to, long long) {
      sum_edge(b, c, input_channel, {whole.begin, inner.begin}, to);
      sum_row(input, taps, bias, to + (inner.begin - whole.begin), inner.count());
      sum_edge(b, c, input_channel, {inner.end, whole.end}, to + (inner.end - whole.begin));
    });
  }

  void sum_copy(long long b, long long c, const T* copy, const OutputRange& whole) {
    const Taps<T> taps{p_.taps, offsets_, weights_of(c), 0};
    in_blocks(b, c, whole, [&](auto* to, long long count) { sum_row(copy, taps, bias_of(c), to, count); });
  }

  // Calls `sum(to, count)` on the result, or on a panel of whole vectors that is stored afterwards.
  template <class Sum>
  void in_blocks(long long b, long long c, const OutputRange& whole, const Sum& sum) {
    const long long target = place(p_.output.strides, b, c, whole.begin);
    const auto run_post = [&](T* values) {
      post_.run(values, whole.count(), [&](int k) { return place(p_.post_operands[k].strides, b, c, whole.begin); });
    };
    if (fits_output_ && whole.count() >= kLanes<T>) {
      Element* const to = p_.output.template as<Element>() + target;
      sum(to, whole.count());
      if constexpr (std::is_same_v<T, Element>) run_post(to);
      return;
    }
    const long long padded = round_up<long long>(whole.count(), kLanes<T>);
    T* const sums = sums_.allocate(padded);
    sum(sums, padded);
    run_post(sums);
    store_elements<Element>(p_.output, same_dtype_, target, p_.output.strides[2], whole.count(), sums);
  }

  // Outputs whose windows leave the input.
  template <class To>
  void sum_edge(long long b, long long c, long long input_channel, const OutputRange& edge, To* to) {
    const T* const weights = weights_of(c);
    for (long long t = edge.begin; t < edge.end; ++t) {
      T sum = bias_of(c);
      for (int k = 0; k < p_.taps; ++k) {
        sum = multiply_add(value_at(b, input_channel, t - p_.padding + k * p_.dilation), weights[k], sum);
      }
      store_host(to[t - edge.begin], sum);
    }
  }

  T value_at(long long b, long long input_channel, long long position) const {
    T value = 0;
    if (position < 0 && p_.history.exists()) {
      load_elements(p_.history, place(p_.history.strides, b, input_channel, position + p_.padding), 0, 1, &value);
    } else if (position >= 0 && position < p_.length) {
      value = load_host<T>(input_[place(p_.input.strides, b, input_channel, position)]);
    }
    return value;
  }

  const T* weights_of(long long c) {
    if (keeps_weights_) return weights_.data() + c * p_.taps;
    if (c != weights_of_) {
      load_elements(p_.weight, c * p_.weight.strides[0], p_.weight.strides[1], p_.taps, weights_.allocate(p_.taps));
      weights_of_ = c;
    }
    return weights_.data();
  }
  T bias_of(long long c) {
    T bias = 0;
    if (keeps_weights_) return biases_.data()[c];
    if (p_.bias.exists()) load_elements(p_.bias, c * p_.bias.strides[0], 0, 1, &bias);
    return bias;
  }
  void load_all_weights() {
    T* const weights = weights_.allocate(p_.channels * p_.taps);
    for (long long c = 0; c < p_.channels; ++c) {
      load_elements(p_.weight, c * p_.weight.strides[0], p_.weight.strides[1], p_.taps, weights + c * p_.taps);
    }
    T* const biases = biases_.allocate(p_.channels);
    fill_zeros(biases, p_.channels);
    if (p_.bias.exists()) load_elements(p_.bias, 0, p_.bias.strides[0], p_.channels, biases);
    keeps_weights_ = true;
  }

  const T* copy_row(long long b, long long c, long long begin, long long outputs) {
    T* const copy = copy_.allocate(residues_.cells(outputs));
    const long long row = place(p_.input.strides, b, c, 0);
    walk_residues(
        begin, outputs,
        [&](long long position, long long elements, long long cell) {
          load_elements(input_ + row + position * p_.input.strides[2], p_.stride * p_.input.strides[2], elements,
                        copy + cell);
          if (p_.pre.empty()) return;
          pre_.run(copy + cell, elements, [&](int k) { return place(p_.pre_operands[k].strides, b, c, position); });
          round_elements<Element>(copy + cell, elements);
        },
        [&](long long position, long long cell) {
          load_elements(p_.history, place(p_.history.strides, b, c, position + p_.padding), 0, 1, copy + cell);
        },
        [&](long long cell, long long elements) { fill_zeros(copy + cell, elements); });
    place_taps(outputs, 1);
    return copy;
  }

  // --- across channels ---

  void run_channels(long long b, long long c, int channels, const OutputRange& whole) {
    const int pitch = round_up(channels, kLanes<T>);
    if (c != weights_of_) load_weights(c, channels, pitch);
    const long long last_start = p_.length - 1 - (p_.taps - 1) * p_.dilation + p_.padding;
    const long long begin = max_of(whole.begin, ceil_div(p_.padding, p_.stride));
    const long long end = min_of(whole.end, last_start < 0 ? 0 : last_start / p_.stride + 1);
    if (!direct_ || pitch != channels || end <= begin) return sum_copied(b, c, channels, pitch, whole);
    if (whole.begin < begin) sum_copied(b, c, channels, pitch, {whole.begin, begin});
    sum_channels_directly(b, c, pitch, {begin, end});
    if (end < whole.end) sum_copied(b, c, channels, pitch, {end, whole.end});
  }

  // (tap, channel), then the biases.
  void load_weights(long long c, int channels, int pitch) {
    T* const weights = weights_.allocate((p_.taps + 1) * 2LL * pitch);
    fill_zeros(weights, (p_.taps + 1) * static_cast<long long>(pitch));
    for (int k = 0; k < p_.taps; ++k) {
      load_elements(p_.weight, c * p_.weight.strides[0] + k * p_.weight.strides[1], p_.weight.strides[0], channels,
                    weights + k * pitch);
    }
    if (p_.bias.exists()) {
      load_elements(p_.bias, c * p_.bias.strides[0], p_.bias.strides[0], channels, weights + p_.taps * pitch);
    }
    // A second copy, in the order of the input's own elements.
    T* const ordered = weights + (p_.taps + 1LL) * pitch;
    for (long long i = 0; i < (p_.taps + 1LL) * pitch; ++i) ordered[i] = weights[i];
    for (int k = 0; k <= p_.taps; ++k) order_channels<Element>(ordered + k * pitch, pitch);
    weights_of_ = c;
  }

  void sum_channels_directly(long long b, long long c, int channels, const OutputRange& outputs) {
    const T* const weights = weights_.data() + (p_.taps + 1LL) * channels;
    const Element* const input = input_ + place(p_.input.strides, b, c, outputs.begin * p_.stride - p_.padding);
    sum_and_store(b, c, channels, channels, outputs, Taps<T>{p_.taps, direct_offsets_, weights, channels}, input,
                  p_.stride * p_.input.strides[2]);
  }

  void sum_copied(long long b, long long c, int channels, int pitch, const OutputRange& outputs) {
    const T* const copy = copy_channels(b, c, channels, pitch, outputs);
    sum_and_store(b, c, channels, pitch, outputs, Taps<T>{p_.taps, offsets_, weights_.data(), pitch}, copy, pitch);
  }

  template <class From>
  void sum_and_store(long long b, long long c, int channels, int pitch, const OutputRange& outputs, const Taps<T>& taps,
                     const From* from, long long step) {
    const T* const bias = taps.weights + p_.taps * static_cast<long long>(pitch);
    if (straight_ && channels == pitch) {
      Element* const to = p_.output.template as<Element>() + place(p_.output.strides, b, c, outputs.begin);
      return sum_positions(from, step, taps, bias, to, p_.output.strides[2], pitch, outputs.count());
    }
    constexpr long long kBlock = 4096;  // sums that stay in the cache for the chain
    const long long rows = max_of<long long>(kPositionsAtOnce, kBlock / pitch);
    T* const sums = sums_.allocate(rows * pitch);
    for (long long t = outputs.begin; t < outputs.end; t += rows) {
      const long long count = min_of(rows, outputs.end - t);
      sum_positions(from + (t - outputs.begin) * step, step, taps, bias, sums, pitch, pitch, count);
      post_.run_rows(sums, pitch, channels, count,
                     [&](int k, long long r) { return place(p_.post_operands[k].strides, b, c, t + r); });
      for (long long r = 0; r < count; ++r) {
        store_elements<Element>(p_.output, same_dtype_, place(p_.output.strides, b, c, t + r), p_.output.strides[1],
                                channels, sums + r * pitch);
      }
    }
  }

  const T* copy_channels(long long b, long long c, int channels, int pitch, const OutputRange& outputs) {
    T* const copy = copy_.allocate(residues_.cells(outputs.count()) * pitch);
    const long long first = c / p_.multiplier;
    const int sources = static_cast<int>((c + channels - 1) / p_.multiplier - first + 1);
    T* const row = p_.multiplier == 1 ? nullptr : expanded_.allocate(sources);
    const auto load = [&](const Operand<3>& from, long long position, long long cell, bool is_input) {
      T* const to = row == nullptr ? copy + cell * pitch : row;
      const long long at = place(from.strides, b, first, position);
      if (!is_input) {
        load_elements(from, at, from.strides[1], sources, to);
      } else {
        load_elements(input_ + at, from.strides[1], sources, to);
        if (!p_.pre.empty()) {
          pre_.run(to, sources, [&](int k) { return place(p_.pre_operands[k].strides, b, first, position); });
          round_elements<Element>(to, sources);
        }
      }
      if (row != nullptr) {
        for (int i = 0; i < channels; ++i) copy[cell * pitch + i] = row[(c + i) / p_.multiplier - first];
      }
      for (int i = channels; i < pitch; ++i) copy[cell * pitch + i] = 0;
    };
    walk_residues(
        outputs.begin, outputs.count(),
        [&](long long position, long long elements, long long cell) {
          for (long long i = 0; i < elements; ++i) load(p_.input, position + i * p_.stride, cell + i, true);
        },
        [&](long long position, long long cell) { load(p_.history, position + p_.padding, cell, false); },
        [&](long long cell, long long elements) { fill_zeros(copy + cell * pitch, elements * pitch); });
    place_taps(outputs.count(), pitch);
    return copy;
  }

  const Conv1dParams& p_;
  const DepthwiseTiles& tiles_;
  const Residues residues_;
  const int walked_;  // the dimension along which vectors run
  const CpuChain<T> pre_, post_;
  Scratch<long long> offset_memory_;
  long long* const offsets_;         // offsets of the taps in the copy
  long long* const direct_offsets_;  // offsets of the taps in the input
  const Element* const input_;
  const bool same_dtype_;       // the output has the input's dtype
  const bool straight_;         // sums are the result: no chain, no other dtype
  const bool fits_output_;      // sums along a row are computed in the result, and the chain runs over them
  const bool direct_;           // the input is read in place where windows are inside it
  bool keeps_weights_ = false;  // weights_ and biases_ have all channels
  long long weights_of_ = -1;   // the channel that weights_ start with, unless they have all
  Scratch<T> copy_, sums_, expanded_, weights_, biases_;
};

}  // namespace

template <>
void depthwise_cpu<kInstructionSet>(const Conv1dParams& params, const DepthwiseTiles& tiles, long long first,
                                    long long last) {
  with_sums_of(params.input.dtype, [&]<class T, class Element>() {
    Depthwise<T, Element> depthwise(params, tiles);
    for (long long tile = first; tile < last; ++tile) depthwise.run(tile);
  });
}

}  // namespace sluice
