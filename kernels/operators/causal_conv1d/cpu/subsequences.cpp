#include "kernels/operators/causal_conv1d/cpu/subsequences.h"

namespace sluice {
namespace {

long long position_of(const SequencesParams& params, long long n) {
  return min_of(max_of(params.sequences.starts.at(n), 0LL), params.convolution.length);
}

// Subsequences of equal ids. The first that is not negative has the row's history.
void append_subsequences_of_row(const SequencesParams& params, long long row, std::vector<Subsequence>& subsequences) {
  const Sequences& s = params.sequences;
  const long long length = params.convolution.length, slot = s.slot_of(row);
  long long first = 0;
  bool has_history = s.has_history(row);
  while (first < length) {
    const long long id = s.ids.exists() ? s.ids.at(row, first) : 0;
    long long last = s.ids.exists() ? first + 1 : length;
    while (last < length && s.ids.at(row, last) == id) ++last;
    subsequences.push_back({row, first, last, id < 0 ? -1 : slot, has_history && id >= 0});
    has_history = has_history && id < 0;
    first = last;
  }
}

// The last subsequence of a row with ids; empty if all are negative.
Subsequence last_subsequence_of_row(const SequencesParams& params, long long row) {
  const Sequences& s = params.sequences;
  Subsequence subsequence{row, 0, params.convolution.length, s.slot_of(row), s.has_history(row)};
  while (subsequence.last > 0 && s.ids.at(row, subsequence.last - 1) < 0) --subsequence.last;
  if (subsequence.last == 0) return subsequence;
  const long long id = s.ids.at(row, subsequence.last - 1);
  subsequence.first = subsequence.last - 1;
  while (subsequence.first > 0 && s.ids.at(row, subsequence.first - 1) == id) --subsequence.first;
  long long before = subsequence.first;  // begin of the negative ids before the subsequence
  while (before > 0 && s.ids.at(row, before - 1) < 0) --before;
  subsequence.has_history = subsequence.has_history && before == 0;
  return subsequence;
}

template <int Rank>
Operand<Rank> moved(const Operand<Rank>& operand, long long elements) {
  Operand<Rank> result = operand;
  if (operand.exists()) {
    result.data = static_cast<char*>(operand.data) + elements * static_cast<long long>(size_of(operand.dtype));
  }
  return result;
}

}  // namespace

std::vector<Subsequence> subsequences_on_cpu(const SequencesParams& params) {
  const Sequences& s = params.sequences;
  std::vector<Subsequence> subsequences;
  if (!s.is_packed()) {
    for (long long row = 0; row < params.convolution.batch; ++row)
      append_subsequences_of_row(params, row, subsequences);
    return subsequences;
  }
  long long end = 0;
  const auto append = [&](long long last, long long slot, bool has_history) {
    if (last > end) subsequences.push_back({0, end, last, slot, has_history});
    end = max_of(end, last);
  };
  append(s.count > 0 ? position_of(params, 0) : params.convolution.length, -1, false);
  for (long long n = 0; n < s.count; ++n) append(position_of(params, n + 1), s.slot_of(n), s.has_history(n));
  append(params.convolution.length, -1, false);
  return subsequences;
}

std::vector<Subsequence> last_subsequences_on_cpu(const SequencesParams& params) {
  const Sequences& s = params.sequences;
  std::vector<Subsequence> subsequences;
  for (long long n = 0; n < s.count; ++n) {
    const long long slot = s.slot_of(n);
    Subsequence subsequence{s.is_packed() ? 0 : n, 0, params.convolution.length, slot, s.has_history(n)};
    if (s.is_packed()) {
      subsequence.first = position_of(params, n);
      subsequence.last = max_of(subsequence.first, position_of(params, n + 1));
    } else if (s.ids.exists()) {
      subsequence = last_subsequence_of_row(params, n);
    }
    if (slot >= 0) subsequences.push_back(subsequence);
  }
  return subsequences;
}

const Conv1dParams& SubsequenceConvolution::at(const Subsequence& subsequence) {
  const Conv1dParams& all = params_.convolution;
  const auto place = [&](const long long* strides) {
    return subsequence.row * strides[0] + subsequence.first * strides[2];
  };
  convolution_.length = convolution_.output_length = subsequence.last - subsequence.first;
  convolution_.input = moved(all.input, place(all.input.strides));
  convolution_.output = moved(all.output, place(all.output.strides));
  for (int k = 0; k < all.pre.operands; ++k) {
    convolution_.pre_operands[k] = moved(all.pre_operands[k], place(all.pre_operands[k].strides));
  }
  for (int k = 0; k < all.post.operands; ++k) {
    convolution_.post_operands[k] = moved(all.post_operands[k], place(all.post_operands[k].strides));
  }
  convolution_.history = {};
  if (subsequence.has_history && params_.history() > 0) {
    const Operand<3>& before = params_.sequences.before;
    const long long column = params_.sequences.columns - params_.history();
    convolution_.history = moved(before, subsequence.slot * before.strides[0] + column * before.strides[2]);
  }
  return convolution_;
}

}  // namespace sluice
