// Lines of values are copied along whichever dimension is contiguous: a channel's columns, or a column's channels.
#include <cstring>

#include "kernels/operators/causal_conv1d/cpu/window.h"
#include "kernels/shared/cpu/elements.h"

namespace sluice {
namespace {

constexpr long long kBlock = 256;  // values of a line that are read before they are written

struct Line {
  const Operand<3>* tensor;  // null, if it is only read: zeros
  long long offset, step;
};

// In blocks from the first value on, so that values may move to the front of their own line.
void copy_line(const Line& from, const Line& to, long long count) {
  with_host_element(to.tensor->dtype, [&](auto* tag) {
    using Element = std::remove_pointer_t<decltype(tag)>;
    Element* const target = to.tensor->template as<Element>() + to.offset;
    for (long long first = 0; first < count; first += kBlock) {
      Element block[kBlock] = {};
      const long long some = min_of(kBlock, count - first), offset = from.offset + first * from.step;
      if (from.tensor != nullptr && from.tensor->dtype == to.tensor->dtype) {
        const Element* const source = from.tensor->template as<const Element>() + offset;
        for (long long i = 0; i < some; ++i) std::memcpy(block + i, source + i * from.step, sizeof(Element));
      } else if (from.tensor != nullptr) {
        alignas(kVectorBytes) double values[kBlock];
        load_elements(*from.tensor, offset, from.step, some, values);
        for (long long i = 0; i < some; ++i) store_host(block[i], values[i]);
      }
      for (long long i = 0; i < some; ++i) {
        std::memcpy(target + (first + i) * to.step, block + i, sizeof(Element));
      }
    }
  });
}

struct Channels {
  long long first, count;
};

// Columns of channels; `from` are the first channel's, and the next channel's are `channel_step` elements on.
void copy_columns(const ValueRun& from, long long channel_step, const Operand<3>& to, long long i, long long column,
                  Channels channels, long long columns) {
  const long long offset = i * to.strides[0] + channels.first * to.strides[1] + column * to.strides[2];
  const long long zeros = min_of(from.zeros, columns);
  if (to.strides[1] == 1) {
    for (long long j = 0; j < columns; ++j) {
      const Line source{j < zeros ? nullptr : from.from, from.offset + j * from.step, channel_step};
      copy_line(source, {&to, offset + j * to.strides[2], 1}, channels.count);
    }
    return;
  }
  for (long long c = 0; c < channels.count; ++c) {
    const Line source{from.from, from.offset + c * channel_step + zeros * from.step, from.step};
    const long long target = offset + c * to.strides[1];
    copy_line({}, {&to, target, to.strides[2]}, zeros);
    copy_line(source, {&to, target + zeros * to.strides[2], to.strides[2]}, columns - zeros);
  }
}

long long channel_step(const ValueRun& run) { return run.from == nullptr ? 0 : run.from->strides[1]; }

}  // namespace

template <>
void window_cpu<kInstructionSet>(const WindowParams& p, long long row, long long first_channel,
                                 long long last_channel) {
  const Channels channels{first_channel, last_channel - first_channel};
  const Sequences& s = p.states;
  const long long slot = s.slot_of(row);
  const auto input_from = [&](long long position) {
    const long long* const strides = p.input.strides;
    return ValueRun{&p.input, row * strides[0] + first_channel * strides[1] + position * strides[2], strides[2], 0};
  };
  if (p.window.exists()) {
    const ValueRun history = p.before(row, slot, first_channel, s.columns - p.history);
    copy_columns(history, channel_step(history), p.window, row, 0, channels, p.history);
    return copy_columns(input_from(0), p.input.strides[1], p.window, row, p.history, channels, p.length);
  }
  if (slot < 0) return;
  const ValueRun before = p.before(row, slot, first_channel, p.length);
  copy_columns(before, channel_step(before), s.before, slot, 0, channels, p.kept());
  copy_columns(input_from(p.first_kept_input()), p.input.strides[1], s.before, slot, p.kept(), channels,
               s.columns - p.kept());
}

template <>
void zero_row_cpu<kInstructionSet>(const ZeroRowsParams& p, long long row, long long first_channel,
                                   long long last_channel) {
  if (!p.clears(row)) return;
  copy_columns({}, 0, p.tensor, row, 0, {first_channel, last_channel - first_channel}, p.columns);
}

template <>
void overlap_cpu<kInstructionSet>(const OverlapParams& p, long long row, long long first_channel,
                                  long long last_channel) {
  const Operand<3>& cache = p.states.before;
  const long long slot = p.states.slot_of(row);
  if (slot < 0 || !(p.replaces || p.states.has_history(row))) return;
  const auto add_and_keep = [&]<class T>(T*) {
    for (long long c = first_channel; c < last_channel; ++c) {
      T* const sums = p.sums.as<T>() + row * p.sums.strides[0] + c * p.sums.strides[1];
      T* const overlap = cache.as<T>() + slot * cache.strides[0] + c * cache.strides[1];
      for (long long j = 0; j < p.overlap; ++j) {
        T& kept = overlap[j * cache.strides[2]];
        if (p.replaces) {
          kept = sums[(p.length + j) * p.sums.strides[2]];
        } else {
          sums[j * p.sums.strides[2]] += kept;
        }
      }
    }
  };
  if (p.sums.dtype == DType::float64) return add_and_keep(static_cast<double*>(nullptr));
  add_and_keep(static_cast<float*>(nullptr));
}

}  // namespace sluice
