// The aten ops that sluice calls, through the dispatcher. Arguments are checked before, because aten's error text does
// not cross the stable ABI. All run with grad mode off: a graph of aten's operations would end at aten's result, and
// omit the chain after it.
#pragma once

#include "ops/common/tensor_view.h"

namespace sluice::aten {

struct ConvolutionNumbers {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  bool is_transposed = false;
  int64_t output_padding = 0;  // a transposed convolution's
};

// aten::convolution, one-dimensional.
Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const ConvolutionNumbers& numbers);
// The same for (B, C, 1, L).
Tensor convolution_of_row(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                          const ConvolutionNumbers& numbers);
// Zeros before and after the last dimension; negative counts are not used.
Tensor pad_last(const Tensor& input, int64_t before, int64_t after);
Tensor concatenate_last(const Tensor& first, const Tensor& second);
// The tensor itself if it has that dtype.
Tensor to_dtype(const Tensor& input, DType dtype);
std::optional<Tensor> to_dtype(const std::optional<Tensor>& input, DType dtype);

// Views.
Tensor narrow_last(const Tensor& input, int64_t first, int64_t count);
Tensor unsqueeze(const Tensor& input, int64_t dimension);
Tensor squeeze(const Tensor& input, int64_t dimension);

// Tells autograd that `out` will be written, as torch's own ops do, so that code that saved it for a gradient can see
// the change. Refuses tensors that torch does not allow to be written.
void raise_version(const char* op, const Tensor& out, const char* argument = "out");

}  // namespace sluice::aten
