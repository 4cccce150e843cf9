#include "kernels/conv1d/link.h"
#include "kernels/conv1d/dense/to_channels_last.h"
#include "kernels/linking/entry_names.h"

namespace sluice {
namespace {

constexpr std::string_view kShapeNames[] = {
#define SLUICE_DENSE_TILE(blocks, channels) #blocks "x" #channels,
#include "kernels/conv1d/dense/tiles.def"
#undef SLUICE_DENSE_TILE
};

NameFields shape_names() { return {std::begin(kShapeNames), std::end(kShapeNames)}; }

}  // namespace

LinkRequest dense_link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  static const NameTable entries("sluice_conv1d",
                                 {{"dense", "general"}, dtype_names(), shape_names(), {"channels", "positions"}});
  static const NameTable modules("conv1d", {{"dense", "general"}, dtype_names(), shape_names()});
  // Only the tiles of interleaved_tiles.def exist; plans name no others.
  static const NameTable interleaved_entries("sluice_conv1d_interleaved", {dtype_names(), shape_names()});
  static const NameTable interleaved_modules("conv1d_interleaved", {dtype_names(), shape_names()});
  const DensePlan& own = plan.dense;
  const DType dtype = params.input.dtype;
  LinkRequest request{};
  if (params.interleave.exists()) {
    request.module = interleaved_modules(dtype, own.shape);
    request.kernel = interleaved_entries(dtype, own.shape);
  } else {
    request.module = modules(own.is_general, dtype, own.shape);
    request.kernel = entries(own.is_general, dtype, own.shape, own.by_positions);
  }
  static const Program kNone;
  request.pre =
      chain_call(own.applies_pre_first ? kNone : params.pre, params.pre_operands, kDensePreWidth, kDensePreSlices);
  request.post = chain_call(params.post, params.post_operands, kDensePostWidth, kDensePostSlices);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output.dtype;
  // A missing bias must not change the link key: use the input's dtype.
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias.exists() ? params.bias.dtype : params.input.dtype;
  return request;
}

LinkRequest to_channels_last_link_request(const Conv1dParams& params) {
  static const NameTable entries("sluice_conv1d_to_channels_last", {{"positions", "channels", "words"}, dtype_names()});
  static const NameTable modules("conv1d_to_channels_last", {dtype_names()});
  const DType dtype = params.input.dtype;
  LinkRequest request{.module = modules(dtype),
                      .kernel = entries(channels_last_from(to_channels_last_params(params)), dtype)};
  request.pre = chain_call(params.pre, params.pre_operands, kHalvesPerWord, 1);
  for (DType& tensor : request.dtypes) tensor = dtype;  // the kernel has none of these tensors
  return request;
}

}  // namespace sluice
