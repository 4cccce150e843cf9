// A tensor's metadata, read once through the stable ABI, in the form that kernels take.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "kernels/shared/common/dtype.h"
#include "kernels/shared/stages/program.h"

namespace sluice {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A dtype, a shape or a device in a message: formatted only when the message is.
struct DtypeText {
  ScalarType dtype;
};
struct ShapeText {
  std::span<const int64_t> sizes;
};
struct DeviceText {
  int32_t type, index;
};
std::ostream& operator<<(std::ostream& text, DtypeText dtype);
std::ostream& operator<<(std::ostream& text, ShapeText shape);
std::ostream& operator<<(std::ostream& text, DeviceText device);

inline DtypeText name_of(ScalarType dtype) { return {dtype}; }
std::optional<DType> dtype_of(ScalarType dtype);
ScalarType scalar_type_of(DType dtype);

struct TensorView {
  // A tensor on the meta device, which is only planned with, gets an address that fresh memory could have.
  void* data;
  ScalarType scalar_type;
  DType dtype;  // only if is_floating
  bool is_floating;
  int64_t element_size;  // in bytes
  // False if a tensor only stands for others, as wrapper subclasses and torch.func's do: its data must not be read.
  bool has_memory;
  int32_t device_type;
  int32_t device_index;
  int64_t rank;
  const int64_t* sizes;
  const int64_t* strides;

  explicit TensorView(const Tensor& tensor);
  // A tensor in unallocated memory of `like`'s device. `sizes` and `strides` have to outlive it.
  TensorView(const TensorView& like, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
             DType dtype);

  bool is_meta() const;
  bool is_cpu() const;
  int64_t elements() const;
  // torch's term: no two elements share memory and there are no gaps; some order of the dimensions is contiguous.
  bool is_non_overlapping_and_dense() const;
  bool is_contiguous() const;
  bool has_sizes(const std::vector<int64_t>& expected) const;
  // Whether these strides give the same addresses: the stride of a dimension of one element does not matter.
  bool has_strides(const int64_t* expected) const;
  bool walks_like(const TensorView& other) const;  // the same sizes and, by has_strides, strides
  // From the tensor's first byte to one past its last.
  std::pair<const char*, const char*> extent() const;
  DeviceText device() const { return {device_type, device_index}; }
  ShapeText shape() const { return {{sizes, static_cast<std::size_t>(rank)}}; }
};

std::vector<int64_t> sizes_of(const TensorView& tensor);

// A tensor as one argument of a kernel of Rank dimensions: `strides` are over the first dimensions, the others are 0.
template <int Rank, class Strides>
Operand<Rank> operand_of(const TensorView& tensor, const Strides& strides) {
  Operand<Rank> operand{.data = tensor.data, .dtype = tensor.dtype, .strides = {}};
  std::copy(std::begin(strides), std::end(strides), operand.strides);
  return operand;
}

// For a tensor of Rank dimensions.
template <int Rank>
Operand<Rank> operand_of(const TensorView& tensor) {
  return operand_of<Rank>(tensor, std::span<const int64_t, Rank>(tensor.strides, Rank));
}

// An optional tensor: null data if absent.
template <int Rank>
Operand<Rank> operand_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? operand_of<Rank>(TensorView(*tensor)) : Operand<Rank>{};
}

}  // namespace sluice
