#include "kernels/operators/conv1d/dense/to_channels_last.h"

#include "kernels/operators/conv1d/conv1d.h"

namespace sluice {

ToChannelsLastParams to_channels_last_params(const Conv1dParams& params) {
  return {.input = params.input,
          .batch = params.batch,
          .channels = params.dense.groups * params.dense.input_channels,
          .length = params.length,
          .converted = nullptr};
}

ChannelsLastFrom channels_last_from(const ToChannelsLastParams& params) {
  const long long sizes[3] = {params.batch, params.channels, params.length};
  if (params.channels % word_elements(params.input.dtype) == 0 && has_words(params.input, sizes, /*dimension=*/1))
    return ChannelsLastFrom::words;
  return params.input.strides[1] == 1 && params.input.strides[2] != 1 ? ChannelsLastFrom::channels
                                                                      : ChannelsLastFrom::positions;
}

}  // namespace sluice
