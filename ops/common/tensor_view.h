// A tensor's metadata, read once through the stable ABI.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/common/dtype.h"

namespace sluice {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string name_of(ScalarType dtype);
std::optional<DType> dtype_of(ScalarType dtype);
ScalarType scalar_type_of(DType dtype);

struct TensorView {
  void* data;
  ScalarType scalar_type;
  DType dtype;  // meaningful where is_floating
  bool is_floating;
  int64_t element_size;  // in bytes
  // False where a tensor only stands for others, as a wrapper subclass and those of torch.func do: nothing may read it.
  bool has_memory;
  int32_t device_type;
  int32_t device_index;
  int64_t rank;
  const int64_t* sizes;
  const int64_t* strides;

  explicit TensorView(const Tensor& tensor);

  int64_t elements() const;
  // No two elements share memory and there are no gaps: some order of the dimensions is contiguous.
  bool is_dense() const;
  bool is_contiguous() const;
  bool has_sizes(const std::vector<int64_t>& expected) const;
  // Bytes from the first to one past the last that the tensor's elements reach.
  std::pair<const char*, const char*> extent() const;
  std::string device() const;
  std::string shape() const;
};

std::string shape_text(const int64_t* sizes, int64_t rank);
std::string shape_text(const std::vector<int64_t>& sizes);

}  // namespace sluice
