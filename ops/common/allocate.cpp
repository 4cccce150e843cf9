#include "ops/common/allocate.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace sluice {

Tensor allocate(const char* op, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype,
                const TensorView& like) {
  AtenTensorHandle handle = nullptr;
  const AOTITorchError status = aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(),
                                                         strides.data(), static_cast<int32_t>(scalar_type_of(dtype)),
                                                         like.device_type, like.device_index, &handle);
  // The wrapper makes torch.OutOfMemoryError of this text: torch's own type does not cross the stable ABI.
  check(status == 0, op, ": out of memory: torch could not allocate ", ShapeText{sizes}, " of ", name_of(dtype), " on ",
        like.device());
  return Tensor(handle);
}

std::optional<Tensor> allocate_workspace(const char* op, int64_t bytes, const TensorView& like) {
  if (bytes == 0) return std::nullopt;
  constexpr int64_t kFloat = sizeof(float);
  return allocate(op, {(bytes + kFloat - 1) / kFloat}, {1}, DType::float32, like);
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

namespace {

bool is_channels_last(const TensorView& input, int64_t spatial) {
  const int64_t channel = input.rank - spatial - 1;
  if (channel < 0 || input.strides[channel] != 1 || input.sizes[channel] < 2) return false;
  for (int64_t d = input.rank - 1; d > channel; --d) {
    if (input.sizes[d] > 1) return input.strides[d] >= input.sizes[channel];
  }
  return false;
}

}  // namespace

std::vector<int64_t> layout_strides(const TensorView& input, const std::vector<int64_t>& sizes, int64_t spatial) {
  if (!is_channels_last(input, spatial)) return contiguous_strides(sizes);
  // The strides of a contiguous channels-last tensor.
  std::vector<int64_t> moved = sizes;
  const auto channel = moved.end() - spatial - 1;
  std::rotate(channel, channel + 1, moved.end());
  std::vector<int64_t> strides = contiguous_strides(moved);
  std::rotate(strides.end() - spatial - 1, strides.end() - 1, strides.end());
  return strides;
}

Tensor restrided(const char* op, const Tensor& tensor, const std::vector<int64_t>& strides) {
  if (std::equal(strides.begin(), strides.end(), tensor.strides().data())) return tensor;
  AtenTensorHandle handle = nullptr;
  const AOTITorchError status = aoti_torch_as_strided(tensor.get(), tensor.sizes().data(), strides.data(), &handle);
  check(status == 0, op, ": torch could not set the strides of a result");
  return Tensor(handle);
}

}  // namespace sluice
