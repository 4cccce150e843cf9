#include "kernels/causal_conv1d/causal_conv1d.h"
#include "kernels/common/half.h"
#include "kernels/common/int_math.h"

namespace sluice {
namespace {

template <class From, class To>
void copy_states(const FinalStatesParams& params, const Operand<3>& from, long long from_position, long long state,
                 long long count) {
  const long long* const s = from.strides;
  const long long* const t = params.states.strides;
  for (long long b = 0; b < params.batch; ++b) {
    for (long long c = 0; c < params.channels; ++c) {
      const From* const source = from.as<From>() + b * s[0] + c * s[1] + from_position * s[2];
      To* const target = params.states.as<To>() + b * t[0] + c * t[1] + state * t[2];
      for (long long j = 0; j < count; ++j) {
        if constexpr (std::is_same_v<From, To>) {
          target[j * t[2]] = source[j * s[2]];
        } else {
          store_host(target[j * t[2]], load_host<double>(source[j * s[2]]));
        }
      }
    }
  }
}

// `count` states from `state` on; zeros where there is nothing to copy them from.
void copy_states(const FinalStatesParams& params, const Operand<3>& from, long long from_position, long long state,
                 long long count) {
  if (count <= 0) return;
  with_host_element(params.states.dtype, [&](auto* to_tag) {
    with_host_element(from.dtype, [&](auto* from_tag) {
      copy_states<std::remove_pointer_t<decltype(from_tag)>, std::remove_pointer_t<decltype(to_tag)>>(
          params, from, from_position, state, count);
    });
  });
}

}  // namespace

void final_states_cpu(const FinalStatesParams& params) {
  // The first states are those of before, moved up by the input's length.
  const long long kept = max_of(0LL, params.width - params.length);
  constexpr double kZero = 0;
  const Operand<3> zeros{const_cast<double*>(&kZero), DType::float64, {}};
  const Operand<3>& before = params.history.exists() ? params.history : zeros;
  copy_states(params, before, params.length, 0, kept);
  copy_states(params, params.input, params.length - params.width + kept, kept, params.width - kept);
}

}  // namespace sluice
