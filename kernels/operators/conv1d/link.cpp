#include "kernels/operators/conv1d/link.h"

#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/dense/portable/portable.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"
#include "kernels/operators/conv1d/depthwise/policy.h"
#include "kernels/operators/conv1d/few_outputs/policy.h"
#include "kernels/operators/conv1d/fourier/policy.h"
#include "kernels/operators/conv1d/long_filter/fragment_layout.h"
#include "kernels/shared/common/int_math.h"

namespace sluice {
namespace {

constexpr KernelRow kDepthwiseRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/depthwise/kernels.def"
};
constexpr KernelRow kDenseRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/dense/kernels.def"
};
constexpr KernelRow kInterleavedRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/interleaved/kernels.def"
};
constexpr KernelRow kPortableRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/dense/portable/kernels.def"
};
constexpr KernelRow kLongFilterRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/long_filter/kernels.def"
};
constexpr KernelRow kFewOutputsRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/few_outputs/kernels.def"
};
constexpr KernelRow kFourierRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/fourier/kernels.def"
};

const Program kNone;

KernelVariants tile_variants() {
  return {.names =
              {
                  "",
#define SLUICE_DENSE_TILE(blocks, channels) #blocks "x" #channels,
#include "kernels/operators/conv1d/dense/tiles.def"
#undef SLUICE_DENSE_TILE
              },
          .have_modules = true};
}

const KernelTable& dense_table() {
  static const KernelTable table("conv1d", kDenseRows, tile_variants());
  return table;
}

LinkRequest depthwise_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const KernelTable table("conv1d", kDepthwiseRows, schedule_variants());
  return table.request(plan.depthwise.which, params.input.dtype, plan.schedule);
}

LinkRequest dense_request(const Conv1dParams& params, const DensePlan& plan) {
  // Only the tiles of interleaved/tiles.def and portable/tiles.def exist; plans name no others.
  static const KernelTable interleaved("conv1d", kInterleavedRows, tile_variants());
  static const KernelTable portable("conv1d", kPortableRows, tile_variants());
  const DType dtype = params.input.dtype;
  const int tile = 1 + plan.shape;
  if (plan.is_portable) return portable.request(portable_kernel_of(plan, params.interleave.exists()), dtype, tile);
  return params.interleave.exists() ? interleaved.request(InterleavedKernel::interleaved, dtype, tile)
                                    : dense_table().request(kernel_of(plan), dtype, tile);
}

LinkRequest long_filter_request(const Conv1dParams& params, const LongFilterPlan& plan) {
  static const KernelTable table("conv1d", kLongFilterRows);
  return table.request(plan.which, params.input.dtype);
}

LinkRequest few_outputs_request(const Conv1dParams& params, const FewOutputsPlan& plan) {
  static const KernelTable table("conv1d", kFewOutputsRows);
  return table.request(kernel_of(plan), params.input.dtype);
}

LinkRequest fourier_request(const FourierPlan& plan) {
  static const KernelTable table("conv1d", kFourierRows);
  return table.request(kernel_of(plan), DType::float32);
}

LinkRequest request_of(const Conv1dParams& params, const Conv1dPlan& plan) {
  switch (plan.which) {
    case Conv1dMethod::dense: return dense_request(params, plan.dense);
    case Conv1dMethod::long_filter: return long_filter_request(params, plan.long_filter);
    case Conv1dMethod::few_outputs: return few_outputs_request(params, plan.few_outputs);
    case Conv1dMethod::fourier: return fourier_request(plan.fourier);
    default: return depthwise_request(params, plan);
  }
}

}  // namespace

LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  LinkRequest request = request_of(params, plan);
  const bool applies_pre_first = plan.which == Conv1dMethod::dense && plan.dense.applies_pre_first;
  set_chain(request.pre, applies_pre_first ? kNone : params.pre, params.pre_operands);
  set_chain(request.post, params.post, params.post_operands);
  const auto set_dtype = [&](LinkedTensor tensor, DType dtype) { request.dtypes[static_cast<int>(tensor)] = dtype; };
  set_dtype(LinkedTensor::output, params.output.dtype);
  if (plan.which == Conv1dMethod::dense || plan.which == Conv1dMethod::few_outputs) {
    // A missing bias must not change the link key: use the input's dtype.
    set_dtype(LinkedTensor::bias, params.bias.exists() ? params.bias.dtype : params.input.dtype);
    return request;
  }
  set_dtype(LinkedTensor::weight, params.weight.dtype);
  set_dtype(LinkedTensor::bias, params.bias.dtype);
  set_dtype(LinkedTensor::history, params.history.dtype);
  return request;
}

LinkRequest to_channels_last_link_request(const Conv1dParams& params) {
  constexpr DenseKernel kKernels[] = {DenseKernel::to_channels_last_positions, DenseKernel::to_channels_last_channels,
                                      DenseKernel::to_channels_last_words};  // by ChannelsLastFrom
  const ChannelsLastFrom from = channels_last_from(to_channels_last_params(params));
  LinkRequest request = dense_table().request(kKernels[static_cast<int>(from)], params.input.dtype);
  set_chain(request.pre, params.pre, params.pre_operands);
  for (DType& tensor : request.dtypes) tensor = params.input.dtype;  // the kernel has none of these tensors
  return request;
}

}  // namespace sluice
