// A column of some channels at a time, as a panel of one value per channel.
#include <cstring>

#include "kernels/operators/causal_conv1d/cpu/states.h"
#include "kernels/shared/cpu/elements.h"
#include "kernels/shared/stages/cpu/chain.h"

namespace sluice {
namespace {

constexpr long long kBlock = 256;  // channels

template <class T, class Element>
class States {
 public:
  States(const SequencesParams& params, const Subsequence& subsequence)
      : p_(params.convolution),
        s_(params.sequences),
        subsequence_(subsequence),
        pre_(p_.pre, p_.pre_operands, /*walked=*/1) {}

  // Columns from the oldest on, so that a row may be moved in place.
  void keep(long long first, long long count) const {
    for (long long j = 0; j < s_.columns; ++j) {
      const long long position = subsequence_.last - s_.columns + j;
      if (position >= subsequence_.first) {
        keep_token(first, count, position, j);
      } else if (subsequence_.has_history) {
        keep_column(first, count, j + subsequence_.last - subsequence_.first, j);
      } else {
        constexpr T kZeros[kBlock] = {};
        store(first, count, j, kZeros);
      }
    }
  }

 private:
  static long long place(const Operand<3>& tensor, long long n, long long c, long long t) {
    return n * tensor.strides[0] + c * tensor.strides[1] + t * tensor.strides[2];
  }
  void store(long long first, long long count, long long column, const T* values) const {
    store_elements<Element>(s_.after, s_.after.dtype == p_.input.dtype,
                            place(s_.after, subsequence_.slot, first, column), s_.after.strides[1], count, values);
  }

  void keep_token(long long first, long long count, long long position, long long column) const {
    const long long from = place(p_.input, subsequence_.row, first, position);
    if (p_.pre.empty() && s_.after.dtype == p_.input.dtype) {
      return copy_bits(p_.input, from, first, count, column);
    }
    alignas(kVectorBytes) T values[kBlock];
    load_elements(p_.input, from, p_.input.strides[1], count, values);
    if (!p_.pre.empty()) {
      pre_.run(values, count, [&](int k) { return place(p_.pre_operands[k], subsequence_.row, first, position); });
      round_elements<Element>(values, count);
    }
    store(first, count, column, values);
  }

  void keep_column(long long first, long long count, long long from_column, long long column) const {
    const long long from = place(s_.before, subsequence_.slot, first, from_column);
    if (s_.after.dtype == s_.before.dtype) return copy_bits(s_.before, from, first, count, column);
    // A double reaches a half type through float, as in torch.
    alignas(kVectorBytes) double values[kBlock];
    load_elements(s_.before, from, s_.before.strides[1], count, values);
    const long long to = place(s_.after, subsequence_.slot, first, column);
    store_elements<double>(s_.after, /*likely=*/false, to, s_.after.strides[1], count, values);
  }

  void copy_bits(const Operand<3>& from, long long offset, long long first, long long count, long long column) const {
    with_host_element(from.dtype, [&](auto* tag) {
      using Bits = std::remove_pointer_t<decltype(tag)>;
      const Bits* const source = from.template as<Bits>() + offset;
      Bits* const target = s_.after.template as<Bits>() + place(s_.after, subsequence_.slot, first, column);
      for (long long c = 0; c < count; ++c) {
        std::memcpy(target + c * s_.after.strides[1], source + c * from.strides[1], sizeof(Bits));
      }
    });
  }

  const Conv1dParams& p_;
  const Sequences& s_;
  const Subsequence& subsequence_;
  const CpuChain<T> pre_;
};

}  // namespace

template <>
void keep_state_cpu<kInstructionSet>(const SequencesParams& params, const Subsequence& last_subsequence,
                                     long long first_channel, long long last_channel) {
  with_sums_of(params.convolution.input.dtype, [&]<class T, class Element>() {
    const States<T, Element> states(params, last_subsequence);
    for (long long c = first_channel; c < last_channel; c += kBlock) {
      states.keep(c, min_of(kBlock, last_channel - c));
    }
  });
}

}  // namespace sluice
