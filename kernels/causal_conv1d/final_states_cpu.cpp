#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/stages/evaluate_cpu.h"

namespace sluice {

void final_states_cpu(const FinalStatesParams& params) {
  const auto offset = [](const long long (&strides)[3], long long b, long long c, long long t) {
    return b * strides[0] + c * strides[1] + t * strides[2];
  };
  for (long long b = 0; b < params.batch; ++b) {
    for (long long c = 0; c < params.channels; ++c) {
      for (long long j = 0; j < params.width; ++j) {
        const long long position = params.length - params.width + j;
        double value = 0;
        if (position >= 0) {
          load_block(params.input.data, params.input.dtype, offset(params.input.strides, b, c, position), 0, 1, &value);
        } else if (params.history.exists()) {
          load_block(params.history.data, params.history.dtype,
                     offset(params.history.strides, b, c, position + params.width), 0, 1, &value);
        }
        store_block(params.states.data, params.states.dtype, offset(params.states.strides, b, c, j), 0, 1, &value);
      }
    }
  }
}

}  // namespace sluice
