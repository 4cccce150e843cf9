#include "kernels/causal_conv1d/update_kernel.cuh"
#include "kernels/causal_conv1d/update_launch.h"
#include "kernels/causal_conv1d/update_words.cuh"
#include "kernels/common/device.h"
#include "kernels/common/element.cuh"
#include "kernels/common/launch.cuh"

namespace sluice {
namespace {

// Whether the chain behind the sums is nothing, or a SiLU alone.
bool is_plain(const Program& post) { return post.empty() || (post.count == 1 && post.stages[0].op == Op::silu); }

// Whether a tensor of this dtype begins at a word.
template <class Element, int Rank>
bool has_words(const Operand<Rank>& tensor) {
  return tensor.dtype == kDType<Element> && reinterpret_cast<std::uintptr_t>(tensor.data) % kWordBytes == 0;
}

// Whether neighbouring channels are neighbours in memory, in whole words for every sequence.
template <class Element>
bool has_channel_words(const Operand<3>& tensor, long long apart) {
  return has_words<Element>(tensor) && tensor.strides[1] == apart && tensor.strides[0] % kWordElements<Element> == 0;
}

// The kernel for one token each and rows one behind another; null where the call does not fit it.
template <class Element>
void (*words_kernel(const UpdateParams& p))(UpdateArguments<Element>) {
  const bool whole_row = p.form == StateForm::end || (p.form == StateForm::front && p.columns == p.history());
  const bool fits = whole_row && !p.is_packed() && p.tokens == 1 && p.channels % kWordElements<Element> == 0 &&
                    has_channel_words<Element>(p.input, 1) && has_channel_words<Element>(p.output, 1) &&
                    has_channel_words<Element>(p.state, p.columns) && (p.columns == 1 || p.state.strides[2] == 1);
  if (!fits) return nullptr;
  if (p.taps == 4 && p.columns == 3) return update_words_kernel<Element, 4, 3>;
  if (p.taps == 4 && p.columns == 4) return update_words_kernel<Element, 4, 4>;
  if (p.taps == 3 && p.columns == 2) return update_words_kernel<Element, 3, 2>;
  if (p.taps == 3 && p.columns == 3) return update_words_kernel<Element, 3, 3>;
  return nullptr;
}

template <class Arguments>
cudaError_t launch_blocks(void (*kernel)(Arguments), Arguments& a, int threads, int channels_each, int shared_memory,
                          cudaStream_t stream) {
  a.channel_blocks = static_cast<int>(ceil_div<long long>(a.channels, threads * channels_each));
  return launch_kernel(kernel, rows_of_work(a) * a.channel_blocks, threads, shared_memory, stream, a);
}

template <class Element>
cudaError_t launch_plain(const UpdateParams& p, cudaStream_t stream) {
  UpdateArguments<Element> a{p};
  a.silu = !p.post.empty();
  if constexpr (!std::is_same_v<Element, double>) {
    if (const auto kernel = words_kernel<Element>(p); kernel != nullptr) {
      a.has_weight_words = has_words<Element>(p.weight) && p.weight.strides[1] == 1 && p.weight.strides[0] == p.taps;
      a.has_bias_words = p.bias.exists() && has_words<Element>(p.bias) && p.bias.strides[0] == 1;
      return launch_blocks(kernel, a, kUpdateWordsThreads, kWordElements<Element>, 0, stream);
    }
  }
  void (*const kernel)(UpdateArguments<Element>) = p.taps == 2   ? update_few_taps_kernel<Element, 2>
                                                   : p.taps == 3 ? update_few_taps_kernel<Element, 3>
                                                                 : update_few_taps_kernel<Element, 4>;
  return launch_blocks(kernel, a, kUpdateThreads, 1, 0, stream);
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
  return launch_blocks(update_kernel<Element>, a, threads, 1, shared_memory, stream);
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
  const bool fits_registers = params.dilation == 1 && params.taps >= 2 && params.taps <= 4;
  const bool is_chainless = params.pre.empty() && is_plain(params.post) && params.state.dtype == params.input.dtype;
  return with_element(params.input.dtype, [&]<class Element>() {
    return fits_registers && is_chainless ? launch_plain<Element>(params, stream)
                                          : launch_chained<Element>(params, most, stream);
  });
}

}  // namespace sluice
