#include "kernels/operators/causal_conv1d/update_launch.h"

#include "kernels/operators/causal_conv1d/update_kernel.cuh"
#include "kernels/operators/causal_conv1d/update_registers.cuh"
#include "kernels/operators/causal_conv1d/update_rows.cuh"
#include "kernels/operators/causal_conv1d/update_words.cuh"
#include "kernels/shared/common/architectures.h"
#include "kernels/shared/common/device.h"
#include "kernels/shared/common/element.cuh"
#include "kernels/shared/common/launch.cuh"

namespace sluice {
namespace {

template <class Arguments>
using Kernel = void (*)(Arguments);

// --- which calls fit lanes of channels ------------------------------------------------------------------------------
template <class Element, int Rank>
bool begins_at(const Operand<Rank>& tensor, int bytes) {
  return tensor.dtype == kDType<Element> && reinterpret_cast<std::uintptr_t>(tensor.data) % bytes == 0;
}

// Whether channels are contiguous, and every token of every sequence starts at a lane.
template <class Element>
bool has_lanes(const Operand<3>& tensor) {
  return begins_at<Element>(tensor, 4) && tensor.strides[1] == 1 && tensor.strides[0] % kLaneChannels<Element> == 0 &&
         tensor.strides[2] % kLaneChannels<Element> == 0;
}

// Whether the state rows of adjacent channels are contiguous, in whole words for every slot.
template <class Element>
bool has_rows(const UpdateTensors& p) {
  return begins_at<Element>(p.state, kWordBytes) && p.state.strides[1] == p.columns && p.state.strides[2] == 1 &&
         p.state.strides[0] % kWordElements<Element> == 0 && p.channels % kWordElements<Element> == 0;
}

// Whether the channels of a column are contiguous instead, as in a cache of (slots, columns, channels).
template <class Element>
bool has_columns(const UpdateTensors& p) {
  return has_lanes<Element>(p.state) && p.channels % kLaneChannels<Element> == 0;
}

template <class Element>
bool has_lanes(const Program& program, const Operand<3>* operands) {
  return is_light(program) && std::all_of(operands, operands + program.operands,
                                          [](const Operand<3>& operand) { return has_lanes<Element>(operand); });
}

template <class Element>
bool fits_lanes(const UpdateParams& p) {
  constexpr long long kMost = 1LL << 30;
  return p.channels < kMost && p.sequences < kMost && p.tokens < kMost &&
         (has_rows<Element>(p) || has_columns<Element>(p)) && has_lanes<Element>(p.input) &&
         has_lanes<Element>(p.output) && has_lanes<Element>(p.pre, p.pre_operands) &&
         has_lanes<Element>(p.post, p.post_operands);
}

// --- kernels of lanes -----------------------------------------------------------------------------------------------
// Chains, and weights of other dtypes or strides, have their own instances.
template <class Element>
struct LaneKernels {
  Kernel<LaneArguments<Element>> plain;
  Kernel<ChainedLaneArguments<Element>> chained;
};

template <class Element>
struct WordsKernels {
  int taps, dilation, columns;
  LaneKernels<Element> one;                   // one sequence per thread
  Kernel<LaneArguments<Element>> plain_many;  // kWordsSequences
};

template <class Element, int Taps, int Dilation, int Columns>
constexpr WordsKernels<Element> words_kernels() {
  return {Taps,
          Dilation,
          Columns,
          {update_words_kernel<LaneArguments<Element>, Element, Taps, Dilation, Columns, 1>,
           update_words_kernel<ChainedLaneArguments<Element>, Element, Taps, Dilation, Columns, 1>},
          update_words_kernel<LaneArguments<Element>, Element, Taps, Dilation, Columns, kWordsSequences>};
}

template <class Element>
const WordsKernels<Element>* find_words_kernels(const UpdateTensors& p) {
  static constexpr WordsKernels<Element> kKernels[] = {
      words_kernels<Element, 4, 1, 3>(), words_kernels<Element, 4, 1, 4>(), words_kernels<Element, 3, 1, 2>(),
      words_kernels<Element, 3, 1, 3>(), words_kernels<Element, 4, 3, 9>(), words_kernels<Element, 4, 3, 10>(),
  };
  const bool whole_row = p.layout == StateLayout::end || (p.layout == StateLayout::front && p.columns == p.history());
  if (!whole_row || p.is_packed() || p.tokens != 1 || !has_rows<Element>(p)) return nullptr;
  for (const WordsKernels<Element>& row : kKernels) {
    if (row.taps == p.taps && row.dilation == p.dilation && row.columns == p.columns) return &row;
  }
  return nullptr;
}

template <class Element>
LaneKernels<Element> find_rows_kernels(const UpdateTensors& p) {
  if (p.dilation != 1 || p.columns > kMostRowColumns) return {};
  if (p.taps == 4) {
    return {update_rows_kernel<LaneArguments<Element>, Element, 4>,
            update_rows_kernel<ChainedLaneArguments<Element>, Element, 4>};
  }
  if (p.taps == 3) {
    return {update_rows_kernel<LaneArguments<Element>, Element, 3>,
            update_rows_kernel<ChainedLaneArguments<Element>, Element, 3>};
  }
  return {};
}

template <class Element>
LaneArguments<Element> make_lane_arguments(const UpdateParams& p) {
  LaneArguments<Element> a{};
  a.input = p.input.template as<const Element>();
  a.output = p.output.template as<Element>();
  a.state = p.state.template as<Element>();
  const bool has_contiguous_weight =
      begins_at<Element>(p.weight, kWordBytes) && p.weight.strides[1] == 1 && p.weight.strides[0] == p.taps;
  if (has_contiguous_weight) a.weight = p.weight.template as<const Element>();
  if (begins_at<Element>(p.bias, 4) && p.bias.strides[0] == 1) a.bias = p.bias.template as<const Element>();
  a.input_stride = p.input.strides[0];
  a.output_stride = p.output.strides[0];
  a.state_stride = p.state.strides[0];
  a.column_lanes = has_rows<Element>(p) ? 0 : p.state.strides[2] / kLaneChannels<Element>;
  a.channels = static_cast<int>(p.channels);
  a.sequences = static_cast<int>(p.sequences);
  a.channel_blocks = FastDivisor(ceil_div<long long>(p.channels, kLanesThreads * kLaneChannels<Element>));
  a.has_slots = p.slots.exists();
  a.silu = !p.post.empty();
  a.tensors = p;
  return a;
}

// A call that fits lanes of channels.
template <class Element>
class LaneCall {
 public:
  LaneCall(const UpdateParams& p, const DeviceProperties& device, cudaStream_t stream)
      : p_(p), device_(device), stream_(stream), arguments_(make_lane_arguments<Element>(p)) {
    const bool has_contiguous_weight = arguments_.weight != nullptr && (arguments_.bias != nullptr || !p.bias.exists());
    is_plain_ = has_contiguous_weight && p.pre.empty() && is_silu_at_most(p.post);
  }

  cudaError_t launch(const WordsKernels<Element>& kernels) const {
    const long long lanes = p_.sequences * p_.channels / kLaneChannels<Element>;
    if (!is_plain_ || lanes < kWordsManyLanes * device_.multiprocessors) return launch(kernels.one, p_.sequences, 0);
    return launch_rows(kernels.plain_many, arguments_, ceil_div<long long>(p_.sequences, kWordsSequences), 0);
  }
  cudaError_t launch(const LaneKernels<Element>& kernels, long long rows, int shared_memory) const {
    if (is_plain_) return launch_rows(kernels.plain, arguments_, rows, shared_memory);
    const ChainedLaneArguments<Element> chained{arguments_, make_light_chain<float>(p_.pre, p_.pre_operands),
                                                make_light_chain<float>(p_.post, p_.post_operands)};
    return launch_rows(kernels.chained, chained, rows, shared_memory);
  }

 private:
  // The kernels of lanes wait for the previous kernel themselves (await_previous), so their launch overlaps its end;
  // code for capabilities before 9.0 cannot.
  template <class Arguments>
  cudaError_t launch_rows(Kernel<Arguments> kernel, const Arguments& a, long long rows, int shared_memory) const {
    const Start start = can_start_beside(device_.compute_capability) ? Start::beside : Start::behind;
    return launch_kernel(kernel, rows * a.channel_blocks.divisor, kLanesThreads, shared_memory, stream_, a, start);
  }

  const UpdateParams& p_;
  const DeviceProperties& device_;
  const cudaStream_t stream_;
  const LaneArguments<Element> arguments_;
  bool is_plain_;
};

// --- kernels of single channels -------------------------------------------------------------------------------------
template <class Arguments>
cudaError_t launch_channels(Kernel<Arguments> kernel, Arguments& a, int threads, int shared_memory,
                            cudaStream_t stream) {
  a.channel_blocks = FastDivisor(ceil_div<long long>(a.channels, threads));
  return launch_kernel(kernel, rows_of_work(a) * a.channel_blocks.divisor, threads, shared_memory, stream, a);
}

// Null if the history is too long, or the dilation another.
template <class Element>
Kernel<LightUpdateArguments<Element>> find_registers_kernel(const UpdateTensors& p) {
  if (p.taps == 1 || (p.dilation == 1 && p.taps <= 4)) return update_registers_kernel<Element, 4, 1>;
  if (p.dilation == 1 && p.taps <= 10) return update_registers_kernel<Element, 10, 1>;
  if (p.dilation == 2 && p.taps <= 5) return update_registers_kernel<Element, 5, 2>;
  if (p.dilation == 3 && p.taps <= 4) return update_registers_kernel<Element, 4, 3>;
  return nullptr;
}

template <class Element>
cudaError_t launch_registers(const UpdateParams& p, Kernel<LightUpdateArguments<Element>> kernel, cudaStream_t stream) {
  using T = Compute<Element>;
  LightUpdateArguments<Element> a{{p}};
  a.is_uniform = p.state.dtype == p.input.dtype && p.weight.dtype == p.input.dtype &&
                 (!p.bias.exists() || p.bias.dtype == p.input.dtype);
  a.pre = make_light_chain<T>(p.pre, p.pre_operands);
  a.post = make_light_chain<T>(p.post, p.post_operands);
  return launch_channels(kernel, a, kUpdateThreads, 0, stream);
}

template <class Element>
cudaError_t launch_chained(const UpdateParams& p, long long most, cudaStream_t stream) {
  using T = Compute<Element>;
  ChainedUpdateArguments<Element> a{{p}};
  const long long sizes[] = {p.sequences, p.channels, p.tokens};
  a.pre = make_chain_arguments<T, 3>(p.pre, p.pre_operands, 3, sizes);
  a.post = make_chain_arguments<T, 3>(p.post, p.post_operands, 3, sizes);
  int threads = kUpdateThreads;
  while (threads > 1 && p.history() * threads > most) threads /= 2;
  const int shared_memory = static_cast<int>(p.history()) * threads * static_cast<int>(sizeof(T));
  return launch_channels<ChainedUpdateArguments<Element>>(update_kernel<Element>, a, threads, shared_memory, stream);
}

// The first of these that takes the call:
//
//   words       one token, rows of a few lengths; lanes of channels
//   rows        K = 3 or 4 without dilation, rows of up to 16 columns; lanes of channels
//   registers   a history of up to nine columns, light chains
//   general     everything
template <class Element>
cudaError_t launch_update(const UpdateParams& p, const DeviceProperties& device, long long most, cudaStream_t stream) {
  if constexpr (!std::is_same_v<Element, double>) {
    if (fits_lanes<Element>(p)) {
      const LaneCall<Element> call(p, device, stream);
      if (const auto* words = find_words_kernels<Element>(p); words != nullptr) return call.launch(*words);
      const LaneKernels<Element> rows = find_rows_kernels<Element>(p);
      const int shared_memory = kLanesThreads * 4 * static_cast<int>(p.columns);
      if (rows.plain != nullptr) return call.launch(rows, rows_of_work(p), shared_memory);
    }
  }
  const auto kernel = find_registers_kernel<Element>(p);
  if (kernel != nullptr && is_light(p.pre) && is_light(p.post)) return launch_registers<Element>(p, kernel, stream);
  return launch_chained<Element>(p, most, stream);
}

}  // namespace

long long most_history(const DeviceProperties& device, DType dtype) {
  return with_element(dtype, [&]<class Element>() {
    return most_dynamic_shared_memory(device) / static_cast<long long>(sizeof(Compute<Element>));
  });
}

cudaError_t launch_causal_conv1d_update(const UpdateParams& params, const DeviceProperties& device,
                                        cudaStream_t stream) {
  const long long most = most_history(device, params.input.dtype);
  if (params.history() > most) return cudaErrorInvalidValue;
  return with_element(params.input.dtype,
                      [&]<class Element>() { return launch_update<Element>(params, device, most, stream); });
}

}  // namespace sluice
