// Windows of a row: taps whose positions differ by a multiple of the stride walk one segment of the row, of which every
// stride-th position counts. With stride 2 and dilation 1:
//
//   input            0 1 2 3 4 5 6 7 8
//   segment 0        0   2   4   6   8     taps 0, 2, 4 begin at its elements 0, 1, 2
//   segment 1          1   3   5   7       taps 1, 3
//
// so that a tap's values for neighbouring outputs are side by side. A row is copied into one block first, a slot for
// each element (and, across channels, a slot for each channel of it): converted once for all taps, strided, put through
// `pre` and padded. With stride 1 the row itself is the only segment, and where it is long and its taps are few it is
// read where it lies.
#include "kernels/conv1d/depthwise/depthwise_cpu.h"

#include "kernels/common/elements_cpu.h"
#include "kernels/common/int_math.h"
#include "kernels/common/scratch_cpu.h"
#include "kernels/common/tap_sums_cpu.h"
#include "kernels/stages/chain_cpu.h"

namespace sluice {
namespace {

// Past these the input's rows fight for the same lines of the L1 cache, and a copy of them is read instead.
constexpr int kDirectChannelTaps = 8;
// The same along a row, whose taps convert what they read each for itself; and the outputs whose windows lie in it.
// Fewer pay more for the row's edges, which are summed one by one, than for a copy: 64 outputs of 7 taps took 1.20 ns
// each, 0.62 with the copy, 512 took 0.27 and 0.25, 2048 of bfloat16 with 31 taps 1.02 and 0.92. A copy of long rows
// with 4 taps, float32 behind the caches, lost 15 %, one of bfloat16 in them 13 %.
template <class T, class Element>
inline constexpr int kDirectTaps = std::is_same_v<T, Element> ? 8 : 4;
constexpr long long kFewestDirect = 1024;
constexpr long long kKeptWeights = 16 * 1024;

struct Segments {
  long long stride, dilation;
  int count;        // of segments
  long long apart;  // elements of a segment from one of its taps to the next
  int taps;

  explicit Segments(const Conv1dTensors& p) : stride(p.stride), dilation(p.dilation), taps(p.taps) {
    long long divisor = stride, rest = dilation % stride;
    while (rest != 0) {
      const long long next = divisor % rest;
      divisor = rest;
      rest = next;
    }
    count = static_cast<int>(min_of<long long>(taps, stride / divisor));
    apart = stride / divisor * dilation / stride;
  }
  // Elements of a segment that `outputs` neighbours read.
  long long length(int segment, long long outputs) const { return outputs + (taps - 1 - segment) / count * apart; }
  long long slots(long long outputs) const {
    long long all = 0;
    for (int s = 0; s < count; ++s) all += length(s, outputs);
    return all;
  }
};

// Whether the chain behind the sums reads what lies where the result goes.
bool reads_output(const Conv1dParams& p) {
  bool reads = false;
  for (int k = 0; k < p.post.operands; ++k) reads = reads || p.post_operands[k].data == p.output.data;
  return reads;
}

// Outputs [begin, end) of one tile.
struct Piece {
  long long begin, end;
  long long count() const { return end - begin; }
};

// Element: of the input, as the sums may read it.
template <class T, class Element>
class Depthwise {
 public:
  Depthwise(const Conv1dParams& params, const DepthwiseTiles& tiles)
      : p_(params),
        tiles_(tiles),
        segments_(params),
        walked_(tiles.across_channels ? 1 : 2),
        pre_(params.pre, params.pre_operands, walked_, tiles.across_channels ? 1 : params.stride),
        post_(params.post, params.post_operands, walked_),
        offsets_(offset_memory_.room_for(2 * params.taps)),
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
    const Piece whole{t, min_of(t + tiles_.positions, p_.output_length)};
    if (tiles_.across_channels) {  // channels outermost: tiles in a row share their weights
      const long long b = row % p_.batch, c = row / p_.batch * tiles_.channels;
      run_channels(b, c, static_cast<int>(min_of(tiles_.channels, p_.channels - c)), whole);
    } else {
      run_rows(row / tiles_.channel_tiles, row % tiles_.channel_tiles * tiles_.channels, whole);
    }
  }

 private:
  // Calls `load(position, elements, slot)` for each run of a segment inside of the input, and `history(position, slot)`
  // or `zeros(slot, elements)` for what is outside.
  template <class Load, class History, class Zeros>
  void walk_segments(long long begin, long long outputs, const Load& load, const History& history, const Zeros& zeros) {
    long long slot = 0;
    for (int s = 0; s < segments_.count; ++s) {
      const long long length = segments_.length(s, outputs);
      const long long start = begin * p_.stride + s * p_.dilation - p_.padding;
      const auto elements_before = [&](long long position) {
        return position <= start ? 0 : min_of(length, ceil_div(position - start, p_.stride));
      };
      const long long from = elements_before(0), to = elements_before(p_.length);
      if (p_.history.exists()) {
        for (long long i = 0; i < from; ++i) history(start + i * p_.stride, slot + i);
      } else if (from > 0) {
        zeros(slot, from);
      }
      if (to > from) load(start + from * p_.stride, to - from, slot + from);
      if (length > to) zeros(slot + to, length - to);
      slot += length;
    }
  }

  // offsets[k]: where tap k begins in the copy.
  void place_taps(long long outputs, long long pitch) {
    long long start = 0;
    for (int s = 0; s < segments_.count; ++s) {
      for (int k = s, i = 0; k < p_.taps; k += segments_.count, ++i) {
        offsets_[k] = (start + i * segments_.apart) * pitch;
      }
      start += segments_.length(s, outputs);
    }
  }

  long long place(const long long* strides, long long b, long long c, long long t) const {
    return b * strides[0] + c * strides[1] + t * strides[2];
  }

  // --- along a row ---

  void run_rows(long long b, long long first_channel, const Piece& whole) {
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

  // Of the tile's outputs `inner` are those whose windows lie in the input.
  void sum_directly(long long b, long long c, long long input_channel, const Piece& whole, const Piece& inner) {
    const Taps<T> taps{p_.taps, direct_offsets_, weights_of(c), 0};
    const T bias = bias_of(c);
    const Element* const input = input_ + place(p_.input.strides, b, input_channel, inner.begin - p_.padding);
    in_blocks(b, c, whole, [&](auto* to, long long) {
      sum_edge(b, c, input_channel, {whole.begin, inner.begin}, to);
      sum_row(input, taps, bias, to + (inner.begin - whole.begin), inner.count());
      sum_edge(b, c, input_channel, {inner.end, whole.end}, to + (inner.end - whole.begin));
    });
  }

  void sum_copy(long long b, long long c, const T* copy, const Piece& whole) {
    const Taps<T> taps{p_.taps, offsets_, weights_of(c), 0};
    in_blocks(b, c, whole, [&](auto* to, long long count) { sum_row(copy, taps, bias_of(c), to, count); });
  }

  // Calls `sum(to, count)` for the result, or for a block with room for whole vectors from which it is stored.
  template <class Sum>
  void in_blocks(long long b, long long c, const Piece& whole, const Sum& sum) {
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
    T* const sums = sums_.room_for(padded);
    sum(sums, padded);
    run_post(sums);
    store_elements<Element>(p_.output, same_dtype_, target, p_.output.strides[2], whole.count(), sums);
  }

  // Outputs whose windows leave the input.
  template <class To>
  void sum_edge(long long b, long long c, long long input_channel, const Piece& edge, To* to) {
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
      load_elements(p_.weight, c * p_.weight.strides[0], p_.weight.strides[1], p_.taps, weights_.room_for(p_.taps));
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
    T* const weights = weights_.room_for(p_.channels * p_.taps);
    for (long long c = 0; c < p_.channels; ++c) {
      load_elements(p_.weight, c * p_.weight.strides[0], p_.weight.strides[1], p_.taps, weights + c * p_.taps);
    }
    T* const biases = biases_.room_for(p_.channels);
    fill_zeros(biases, p_.channels);
    if (p_.bias.exists()) load_elements(p_.bias, 0, p_.bias.strides[0], p_.channels, biases);
    keeps_weights_ = true;
  }

  const T* copy_row(long long b, long long c, long long begin, long long outputs) {
    T* const copy = copy_.room_for(segments_.slots(outputs));
    const long long row = place(p_.input.strides, b, c, 0);
    walk_segments(
        begin, outputs,
        [&](long long position, long long elements, long long slot) {
          load_elements(input_ + row + position * p_.input.strides[2], p_.stride * p_.input.strides[2], elements,
                        copy + slot);
          if (p_.pre.empty()) return;
          pre_.run(copy + slot, elements, [&](int k) { return place(p_.pre_operands[k].strides, b, c, position); });
          round_elements<Element>(copy + slot, elements);
        },
        [&](long long position, long long slot) {
          load_elements(p_.history, place(p_.history.strides, b, c, position + p_.padding), 0, 1, copy + slot);
        },
        [&](long long slot, long long elements) { fill_zeros(copy + slot, elements); });
    place_taps(outputs, 1);
    return copy;
  }

  // --- across channels ---

  void run_channels(long long b, long long c, int channels, const Piece& whole) {
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

  // (tap, channel), and the biases behind them.
  void load_weights(long long c, int channels, int pitch) {
    T* const weights = weights_.room_for((p_.taps + 1) * 2LL * pitch);
    fill_zeros(weights, (p_.taps + 1) * static_cast<long long>(pitch));
    for (int k = 0; k < p_.taps; ++k) {
      load_elements(p_.weight, c * p_.weight.strides[0] + k * p_.weight.strides[1], p_.weight.strides[0], channels,
                    weights + k * pitch);
    }
    if (p_.bias.exists()) {
      load_elements(p_.bias, c * p_.bias.strides[0], p_.bias.strides[0], channels, weights + p_.taps * pitch);
    }
    // A second time, in the order in which the input's own elements are met.
    T* const ordered = weights + (p_.taps + 1LL) * pitch;
    for (long long i = 0; i < (p_.taps + 1LL) * pitch; ++i) ordered[i] = weights[i];
    for (int k = 0; k <= p_.taps; ++k) order_channels<Element>(ordered + k * pitch, pitch);
    weights_of_ = c;
  }

  void sum_channels_directly(long long b, long long c, int channels, const Piece& piece) {
    const T* const weights = weights_.data() + (p_.taps + 1LL) * channels;
    const Element* const input = input_ + place(p_.input.strides, b, c, piece.begin * p_.stride - p_.padding);
    sum_and_store(b, c, channels, channels, piece, Taps<T>{p_.taps, direct_offsets_, weights, channels}, input,
                  p_.stride * p_.input.strides[2]);
  }

  void sum_copied(long long b, long long c, int channels, int pitch, const Piece& piece) {
    const T* const copy = copy_channels(b, c, channels, pitch, piece);
    sum_and_store(b, c, channels, pitch, piece, Taps<T>{p_.taps, offsets_, weights_.data(), pitch}, copy, pitch);
  }

  template <class From>
  void sum_and_store(long long b, long long c, int channels, int pitch, const Piece& piece, const Taps<T>& taps,
                     const From* from, long long step) {
    const T* const bias = taps.weights + p_.taps * static_cast<long long>(pitch);
    if (straight_ && channels == pitch) {
      Element* const to = p_.output.template as<Element>() + place(p_.output.strides, b, c, piece.begin);
      return sum_positions(from, step, taps, bias, to, p_.output.strides[2], pitch, piece.count());
    }
    constexpr long long kBlock = 4096;  // sums that stay in the cache for the chain
    const long long rows = max_of<long long>(kPositionsAtOnce, kBlock / pitch);
    T* const sums = sums_.room_for(rows * pitch);
    for (long long t = piece.begin; t < piece.end; t += rows) {
      const long long count = min_of(rows, piece.end - t);
      sum_positions(from + (t - piece.begin) * step, step, taps, bias, sums, pitch, pitch, count);
      post_.run_rows(sums, pitch, channels, count,
                     [&](int k, long long r) { return place(p_.post_operands[k].strides, b, c, t + r); });
      for (long long r = 0; r < count; ++r) {
        store_elements<Element>(p_.output, same_dtype_, place(p_.output.strides, b, c, t + r), p_.output.strides[1],
                                channels, sums + r * pitch);
      }
    }
  }

  const T* copy_channels(long long b, long long c, int channels, int pitch, const Piece& piece) {
    T* const copy = copy_.room_for(segments_.slots(piece.count()) * pitch);
    const long long first = c / p_.multiplier;
    const int sources = static_cast<int>((c + channels - 1) / p_.multiplier - first + 1);
    T* const row = p_.multiplier == 1 ? nullptr : expanded_.room_for(sources);
    const auto load = [&](const Operand<3>& from, long long position, long long slot, bool is_input) {
      T* const to = row == nullptr ? copy + slot * pitch : row;
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
        for (int i = 0; i < channels; ++i) copy[slot * pitch + i] = row[(c + i) / p_.multiplier - first];
      }
      for (int i = channels; i < pitch; ++i) copy[slot * pitch + i] = 0;
    };
    walk_segments(
        piece.begin, piece.count(),
        [&](long long position, long long elements, long long slot) {
          for (long long i = 0; i < elements; ++i) load(p_.input, position + i * p_.stride, slot + i, true);
        },
        [&](long long position, long long slot) { load(p_.history, position + p_.padding, slot, false); },
        [&](long long slot, long long elements) { fill_zeros(copy + slot * pitch, elements * pitch); });
    place_taps(piece.count(), pitch);
    return copy;
  }

  const Conv1dParams& p_;
  const DepthwiseTiles& tiles_;
  const Segments segments_;
  const int walked_;  // the dimension along which vectors run
  const CpuChain<T> pre_, post_;
  Scratch<long long> offset_memory_;
  long long* const offsets_;         // of the taps in the copy,
  long long* const direct_offsets_;  // and in the input
  const Element* const input_;
  const bool same_dtype_;       // of the output
  const bool straight_;         // sums go into the result without a chain or another dtype between
  const bool fits_output_;      // along a row: sums are made there, and the chain runs over them
  const bool direct_;           // the input is read as it lies where a window does not leave it
  bool keeps_weights_ = false;  // those of all channels
  long long weights_of_ = -1;   // else the channel that weights_ begin with
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
