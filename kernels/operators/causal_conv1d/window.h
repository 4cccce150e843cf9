// One chunk of a stream: what a dense causal convolution reads, and the states that it leaves.
//
//   state      |..hhh|            h: the history, inputs before the chunk
//   chunk            |xxxx|
//   window       |hhhxxxx|        the convolution reads this, without padding
//   new state        |.hhxxxx|    its last columns, as many as the cache has
//
// A transposed convolution leaves sums of outputs after the chunk instead:
//
//   sums       |yyyyyyyyrrr|      y: the chunk's outputs, after the row's old overlap is added to the first of them
//   overlap            |rrr|      r: the new overlap
#pragma once

#include "kernels/operators/causal_conv1d/sequences.h"

namespace sluice {

// Equally distant values of a channel.
struct ValueRun {
  const Operand<3>* from;  // null: zeros
  long long offset, step;
  long long zeros;  // values at the beginning that are zeros instead
};

// What is before the first input of a row without a state: zeros, the first input, or the inputs after the first, where
// zeros stand for inputs that the chunk does not have.
enum class Before : int { zeros, replicate, reflect };

// `states.before` is the cache, in which each row has a slot.
struct WindowParams {
  Operand<3> input;   // (row, channel, position)
  Operand<3> window;  // (row, channel, column) of the input's dtype, filled; absent: states are replaced
  Sequences states;
  long long channels, length, history;
  Before padding;

  // Values before the chunk, from this column of the state on.
  SLUICE_HOST_DEVICE ValueRun before(long long row, long long slot, long long channel, long long column) const {
    const auto run = [&](const Operand<3>& tensor, long long i, long long k, long long columns, long long zeros) {
      const long long offset = i * tensor.strides[0] + channel * tensor.strides[1] + k * tensor.strides[2];
      return ValueRun{&tensor, offset, columns * tensor.strides[2], zeros};
    };
    if (slot < 0) return {};
    if (states.has_history(row)) return run(states.before, slot, column, 1, 0);
    const long long ahead = states.columns - column;  // positions before the chunk
    if (padding == Before::reflect) return run(input, row, ahead, -1, max_of(0LL, ahead - length + 1));
    return padding == Before::replicate ? run(input, row, 0, 0, 0) : ValueRun{};
  }
  // Columns of the new state that are not the chunk's.
  SLUICE_HOST_DEVICE long long kept() const { return max_of(0LL, states.columns - length); }
  // The first position of the chunk that is in the new state.
  SLUICE_HOST_DEVICE long long first_kept_input() const { return max_of(0LL, length - states.columns); }
};

// Columns of rows that become zeros: of rows without a slot, or also of rows without a state.
struct ZeroRowsParams {
  Operand<3> tensor;  // (row, channel, column)
  Sequences states;
  long long channels, columns;
  bool without_state;

  SLUICE_HOST_DEVICE bool clears(long long row) const {
    return states.slot_of(row) < 0 || (without_state && !states.has_history(row));
  }
};

// `states.before` is the cache of overlaps, of the sums' dtype: float32, or float64.
struct OverlapParams {
  Operand<3> sums;  // (row, channel, position): `length` outputs, then the columns of the overlap
  Sequences states;
  long long channels, length, overlap;
  bool replaces;  // the sums' last columns become the overlaps; else overlaps are added to the first
};

}  // namespace sluice
