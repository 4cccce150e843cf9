#include "kernels/conv1d/dense/lay.h"

#include "kernels/conv1d/conv1d.h"

namespace sluice {

LayParams lay_params(const Conv1dParams& params) {
  return {.input = params.input,
          .batch = params.batch,
          .channels = params.dense.groups * params.dense.input_channels,
          .length = params.length,
          .laid = nullptr};
}

LayFrom lay_from(const LayParams& params) {
  const long long sizes[3] = {params.batch, params.channels, params.length};
  if (params.channels % kPieceElements == 0 && has_words(params.input, sizes, /*dimension=*/1)) return LayFrom::words;
  return params.input.strides[1] == 1 && params.input.strides[2] != 1 ? LayFrom::channels : LayFrom::positions;
}

}  // namespace sluice
