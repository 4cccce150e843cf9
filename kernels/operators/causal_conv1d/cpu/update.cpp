// Some channels of a sequence at a time, as vectors: a column of the history, a tap and a token are a panel of one
// value per channel.
#include <cstring>

#include "kernels/operators/causal_conv1d/cpu/update.h"
#include "kernels/shared/cpu/elements.h"
#include "kernels/shared/cpu/scratch.h"
#include "kernels/shared/stages/cpu/chain.h"

namespace sluice {
namespace {

template <class T, class Element>
class Update {
 public:
  explicit Update(const UpdateParams& params)
      : p_(params),
        history_(params.history()),
        pre_(params.pre, params.pre_operands, /*walked=*/1),
        post_(params.post, params.post_operands, /*walked=*/1),
        columns_(column_memory_.allocate(max_of(history_, 1LL) * kUpdateChannels)),
        taps_(tap_memory_.allocate(params.taps * kUpdateChannels)) {}

  void run(long long item) {
    const long long blocks = ceil_div(p_.channels, kUpdateChannels), n = item / blocks;
    first_ = item % blocks * kUpdateChannels;
    count_ = min_of(kUpdateChannels, p_.channels - first_);
    write_zeros(n, tokens_before(p_, n));
    if (n >= p_.sequences) return;
    const UpdateSequence s = sequence_of(p_, n);
    write_zeros(n, tokens_behind(p_, n));
    if (s.slot < 0) write_zeros(n, {s.token, s.token + s.count});
    if (s.slot < 0 || s.count == 0) return;
    oldest_ = 0;
    for (long long j = 0; j < history_; ++j) {
      load_elements(p_.state, state_offset(s, s.column(s.first + j)), p_.state.strides[1], count_, column(j));
    }
    move_row(s);
    load_taps();
    for (long long t = 0; t < s.count; ++t) take_token(s, n, t);
  }

 private:
  long long state_offset(const UpdateSequence& s, long long column) const {
    return s.slot * p_.state.strides[0] + first_ * p_.state.strides[1] + column * p_.state.strides[2];
  }
  template <int Rank>
  long long offset(const Operand<Rank>& tensor, long long n, long long t) const {
    return n * tensor.strides[0] + first_ * tensor.strides[1] + t * tensor.strides[2];
  }
  // The j-th column of the history, oldest first.
  T* column(long long j) const {
    const long long place = oldest_ + j;
    return columns_ + (place < history_ ? place : place - history_) * kUpdateChannels;
  }

  void write_zeros(long long n, TokenRange tokens) const {
    constexpr T kZeros[kUpdateChannels] = {};
    for (long long t = tokens.first; t < tokens.last; ++t) store(n, t, kZeros);
  }
  void store(long long n, long long t, const T* values) const {
    store_elements<Element>(p_.output, /*likely=*/true, offset(p_.output, n, t), p_.output.strides[1], count_, values);
  }

  // Moves the bits of the columns that stay.
  void move_row(const UpdateSequence& s) const {
    const long long size = static_cast<long long>(size_of(p_.state.dtype));
    for (long long c = 0; s.kept > 0 && c < count_; ++c) {
      char* const row = static_cast<char*>(p_.state.data) + (state_offset(s, 0) + c * p_.state.strides[1]) * size;
      const long long step = p_.state.strides[2] * size;
      if (step == size) {
        std::memmove(row, row + s.shift * size, static_cast<std::size_t>(s.kept * size));
      } else {
        for (long long j = 0; j < s.kept; ++j) {
          std::memcpy(row + j * step, row + (j + s.shift) * step, static_cast<std::size_t>(size));
        }
      }
    }
  }

  void load_taps() const {
    for (long long k = 0; k < p_.taps; ++k) {
      load_elements(p_.weight, first_ * p_.weight.strides[0] + k * p_.weight.strides[1], p_.weight.strides[0], count_,
                    taps_ + k * kUpdateChannels);
    }
  }

  void take_token(const UpdateSequence& s, long long n, long long t) {
    const long long place = s.token + t;
    alignas(kVectorBytes) T value[kUpdateChannels], sum[kUpdateChannels];
    load_elements<T, Element>(p_.input.template as<Element>() + offset(p_.input, n, place), p_.input.strides[1], count_,
                              value);
    if (!p_.pre.empty()) {
      pre_.run(value, count_, [&](int k) { return offset(p_.pre_operands[k], n, place); });
      Element rounded[kUpdateChannels];
      store_elements<T, Element>(rounded, 1, count_, value);
      load_elements<T, Element>(rounded, 1, count_, value);
    }
    if (s.writes(t)) keep(s, n, t, value);
    if (p_.bias.exists()) {
      load_elements(p_.bias, first_ * p_.bias.strides[0], p_.bias.strides[0], count_, sum);
    } else {
      fill_zeros(sum, count_);
    }
    for (long long k = 0; k + 1 < p_.taps; ++k) add_products(sum, taps_ + k * kUpdateChannels, column(k * p_.dilation));
    add_products(sum, taps_ + (p_.taps - 1) * kUpdateChannels, value);
    post_.run(sum, count_, [&](int k) { return offset(p_.post_operands[k], n, place); });
    store(n, place, sum);
    if (history_ > 0) {
      std::memcpy(column(0), value, static_cast<std::size_t>(count_) * sizeof(T));
      oldest_ = oldest_ + 1 == history_ ? 0 : oldest_ + 1;
    }
  }

  // Writes the token into the row: its bits, if the row has the input's dtype.
  void keep(const UpdateSequence& s, long long n, long long t, const T* value) const {
    const long long to = state_offset(s, s.column(s.target + t)), step = p_.state.strides[1];
    if (p_.state.dtype != p_.input.dtype || !p_.pre.empty()) {
      return store_elements<Element>(p_.state, p_.state.dtype == p_.input.dtype, to, step, count_, value);
    }
    const Element* const from = p_.input.template as<Element>() + offset(p_.input, n, s.token + t);
    Element* const row = p_.state.template as<Element>() + to;
    for (long long i = 0; i < count_; ++i) row[i * step] = from[i * p_.input.strides[1]];
  }

  void add_products(T* __restrict sum, const T* taps, const T* values) const {
    for (long long i = 0; i < count_; ++i) sum[i] += taps[i] * values[i];
  }

  const UpdateParams& p_;
  const long long history_;
  const CpuChain<T> pre_, post_;
  Scratch<T> column_memory_, tap_memory_;
  T* const columns_;  // a circular buffer of columns
  T* const taps_;
  long long first_ = 0, count_ = 0, oldest_ = 0;
};

}  // namespace

template <>
void causal_conv1d_update_cpu<kInstructionSet>(const UpdateParams& params, long long first, long long last) {
  with_sums_of(params.input.dtype, [&]<class T, class Element>() {
    Update<T, Element> update(params);
    for (long long item = first; item < last; ++item) update.run(item);
  });
}

}  // namespace sluice
