#include "kernels/operators/causal_conv1d/sequences_channels.cuh"
#include "kernels/operators/causal_conv1d/sequences_kernel.cuh"
#include "kernels/operators/causal_conv1d/sequences_launch.h"
#include "kernels/operators/causal_conv1d/sequences_rows.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

// Whether states have the input's dtype, or are absent.
bool has_same_states(const SequencesParams& params) {
  const auto is_same = [&](const Operand<3>& states) {
    return !states.exists() || states.dtype == params.convolution.input.dtype;
  };
  return is_same(params.sequences.before) && is_same(params.sequences.after);
}

// Whether sequences are whole rows, with a state each or none.
bool are_plain_rows(const SequencesParams& params) {
  const Sequences& s = params.sequences;
  return !s.is_packed() && !s.ids.exists() && !s.slots.exists() && !s.continues.exists() && !s.moves_in_place() &&
         has_same_states(params);
}

// The plan of a kernel for few taps, or one of 0 threads if none fits the call.
Conv1dPlan plan_few_taps(const SequencesParams& params, const DeviceProperties& device) {
  const Conv1dParams& p = params.convolution;
  const Indices& ids = params.sequences.ids;
  Conv1dPlan none;
  if (p.taps < 2 || p.taps > kFewTaps || p.dilation != 1) return none;
  if (min_of(min_of(p.batch, p.channels), p.length) < 1) return none;
  const bool is_plain = p.pre.empty() && is_silu_at_most(p.post);
  const bool is_gated = is_gate(p.pre, p.pre_operands, p.input.dtype) &&
                        is_gate(p.post, p.post_operands, p.input.dtype) && has_same_states(params);
  Conv1dProblem problem = problem_of(p);
  problem.has_post = false;  // these kernels apply the chains themselves
  problem.has_pre = problem.has_tensors = !is_plain;
  const Conv1dPlan plan = plan_depthwise(problem, ScheduleRequest{}, device, /*linked=*/true);
  if (!is_of(plan.depthwise.which, DepthwiseFamily::few_taps)) return none;
  if (!takes_channels(plan.depthwise.which)) return is_plain ? plan : none;
  const bool reads_ids = !ids.exists() || (!ids.is_wide && ids.strides[1] == 1);
  return reads_ids && (is_plain || is_gated) ? plan : none;
}

// One thread for some positions of a channel.
Conv1dPlan plan_general(const Conv1dParams& p) {
  Conv1dPlan plan;
  plan.threads = kSequencesThreads;
  const long long items = p.batch * p.channels * ceil_div<long long>(p.length, kSequencesPositions);
  plan.grid = ceil_div<long long>(items, kSequencesThreads);
  plan.depthwise.own = WordsPlan{};
  return plan;
}

// Iterations of a block of sequences_rows: as many as leave each SM several times its resident blocks.
int iterations_of_rows(const Conv1dPlan& plan, const DeviceProperties& device) {
  constexpr long long kMost = 8, kLeastBlocks = 48;  // blocks per SM
  return static_cast<int>(max_of(1LL, min_of(kMost, plan.grid / (kLeastBlocks * device.multiprocessors))));
}

template <class Element>
SequencesArguments<Element> sequences_arguments(const SequencesParams& params, const Conv1dPlan& plan,
                                                const DeviceProperties& device) {
  const Conv1dParams& p = params.convolution;
  SequencesArguments<Element> a{};
  fill(static_cast<WordsArguments<Element>&>(a), p, plan);
  a.sequences = params.sequences;
  a.tiles = plan.grid;
  if (are_plain_rows(params)) {
    a.history = params.sequences.before;
  } else if (plan.depthwise.which == DepthwiseKernel::few_taps_rows) {
    a.iterations = iterations_of_rows(plan, device);
    const long long channel_blocks = ceil_div<long long>(p.channels, a.rows_per_block * a.iterations);
    a.by_channel_blocks = FastDivisor(channel_blocks);
    a.tiles = p.batch * channel_blocks * plan.depthwise.tiles_across;
  }
  a.before_quads = state_quads<Element>(params.sequences.before, params.sequences.columns);
  a.after_quads = state_quads<Element>(params.sequences.after, params.sequences.columns);
  a.across = p.output.strides[1] == 1 && p.channels > 1;
  a.position_blocks = static_cast<int>(ceil_div<long long>(p.length, kSequencesPositions));
  a.channel_blocks = static_cast<int>(ceil_div<long long>(p.channels, kStateBlockChannels));
  return a;
}

template <class Element>
cudaError_t launch_as(const SequencesParams& params, const DeviceProperties& device, cudaStream_t stream) {
  const auto launch = [&](Kernel<SequencesArguments<Element>> kernel, const Conv1dPlan& plan) {
    const SequencesArguments<Element> a = sequences_arguments<Element>(params, plan, device);
    const bool has_quads = takes_channels(plan.depthwise.which);
    const long long grid = a.tiles + state_blocks(a, plan.threads, has_quads ? kFewTapsChannels : 1);
    return grid == 0 ? cudaSuccess : launch_kernel(kernel, grid, plan.threads, 0, stream, a);
  };
  if constexpr (!std::is_same_v<Element, double>) {
    const Conv1dPlan plan = plan_few_taps(params, device);
    const auto launch_few_taps = [&]<bool HasIds>() {
      if (plan.depthwise.which == DepthwiseKernel::gated_channels) {
        return launch(sequences_gated_kernel<HasIds, Element>, plan);
      }
      if (takes_channels(plan.depthwise.which)) {
        return launch(sequences_channels_kernel<HasIds, Element>, plan);
      }
      return launch(are_plain_rows(params) ? rows_and_states_kernel<Element> : sequences_rows_kernel<Element>, plan);
    };
    if (plan.threads > 0) {
      return params.sequences.ids.exists() ? launch_few_taps.template operator()<true>()
                                           : launch_few_taps.template operator()<false>();
    }
  }
  return launch(sequences_kernel<Element>, plan_general(params.convolution));
}

}  // namespace

cudaError_t launch_sequences(const SequencesParams& params, const DeviceProperties& device, cudaStream_t stream) {
  return with_element(params.convolution.input.dtype,
                      [&]<class Element>() { return launch_as<Element>(params, device, stream); });
}

}  // namespace sluice
