#include "kernels/operators/conv1d/link.h"
#include "kernels/linking/kernel_table.h"
#include "kernels/operators/conv1d/dense/to_channels_last.h"

namespace sluice {
namespace {

constexpr KernelRow kRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/dense/kernels.def"
};

constexpr KernelRow kInterleavedRows[] = {
#define SLUICE_KERNEL SLUICE_KERNEL_ROW
#include "kernels/operators/conv1d/interleaved/kernels.def"
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
  static const KernelTable table("conv1d", kRows, tile_variants());
  return table;
}

LinkRequest request_of(const Conv1dParams& params, const DensePlan& plan) {
  // Only the tiles of interleaved/tiles.def exist; plans name no others.
  static const KernelTable interleaved("conv1d", kInterleavedRows, tile_variants());
  const DType dtype = params.input.dtype;
  const int tile = 1 + plan.shape;
  return params.interleave.exists() ? interleaved.request(/*kernel=*/0, dtype, tile)
                                    : dense_table().request(kernel_of(plan), dtype, tile);
}

}  // namespace

LinkRequest dense_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  LinkRequest request = request_of(params, plan.dense);
  set_chain(request.pre, plan.dense.applies_pre_first ? kNone : params.pre, params.pre_operands);
  set_chain(request.post, params.post, params.post_operands);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  // A missing bias must not change the link key: use the input's dtype.
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.exists() ? params.bias.dtype : params.input.dtype;
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
