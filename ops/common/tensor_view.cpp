#include "ops/common/tensor_view.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <numeric>

namespace sluice {

std::ostream& operator<<(std::ostream& text, DtypeText dtype) {
  static const char* const names[] = {"uint8",   "int8",    "int16",     "int32",     "int64",      "float16",
                                      "float32", "float64", "complex32", "complex64", "complex128", "bool",
                                      "qint8",   "quint8",  "qint32",    "bfloat16"};
  static const char* const newer[] = {"float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz",
                                      "uint16",      "uint32",        "uint64"};
  const auto index = static_cast<std::size_t>(dtype.dtype);
  constexpr auto kNewer = static_cast<std::size_t>(ScalarType::Float8_e5m2);  // those between are bits without numbers
  if (index < std::size(names)) return text << names[index];
  return text << (index >= kNewer && index - kNewer < std::size(newer) ? newer[index - kNewer] : "another one");
}

std::ostream& operator<<(std::ostream& text, ShapeText shape) {
  text << '(';
  for (std::size_t d = 0; d < shape.sizes.size(); ++d) text << (d > 0 ? ", " : "") << shape.sizes[d];
  return text << (shape.sizes.size() == 1 ? ",)" : ")");
}

std::ostream& operator<<(std::ostream& text, DeviceText device) {
  if (device.type == aoti_torch_device_type_cpu()) return text << "cpu";
  if (device.type == aoti_torch_device_type_cuda()) return text << "cuda:" << device.index;
  if (device.type == aoti_torch_device_type_meta()) return text << "meta";
  return text << "device type " << device.type;
}

std::optional<DType> dtype_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float: return DType::float32;
    case ScalarType::Half: return DType::float16;
    case ScalarType::BFloat16: return DType::bfloat16;
    case ScalarType::Double: return DType::float64;
    default: return std::nullopt;
  }
}

ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return ScalarType::Float;
    case DType::float16: return ScalarType::Half;
    case DType::bfloat16: return ScalarType::BFloat16;
    default: return ScalarType::Double;
  }
}

namespace {

// An address at which torch's memory could start, on any device.
char* const kFreshMemory = reinterpret_cast<char*>(std::uintptr_t{1} << 20);

// For any tensor: torch::stable's own throws for dtypes without a name there.
ScalarType scalar_type_of(const Tensor& tensor) {
  int32_t index = 0;
  aoti_torch_get_dtype(tensor.get(), &index);
  return static_cast<ScalarType>(index);
}

}  // namespace

TensorView::TensorView(const Tensor& tensor)
    : data(nullptr), scalar_type(scalar_type_of(tensor)), rank(tensor.dim()), sizes(nullptr), strides(nullptr) {
  // A tensor without strides or, if nested, without sizes must not be read.
  int32_t layout = 0;
  aoti_torch_get_layout(tensor.get(), &layout);
  const bool is_strided = layout == aoti_torch_layout_strided() &&
                          aoti_torch_get_sizes(tensor.get(), const_cast<int64_t**>(&sizes)) == 0 &&
                          aoti_torch_get_strides(tensor.get(), const_cast<int64_t**>(&strides)) == 0;
  if (!is_strided) rank = 0;
  const std::optional<DType> known = dtype_of(scalar_type);
  is_floating = known.has_value();
  dtype = known.value_or(DType::float32);
  element_size = is_floating ? static_cast<int64_t>(size_of(dtype)) : static_cast<int64_t>(tensor.element_size());
  // The data pointer of a tensor without memory raises an error, or is null plus its offset.
  int64_t offset = 0;
  aoti_torch_get_storage_offset(tensor.get(), &offset);
  if (aoti_torch_get_data_ptr(tensor.get(), &data) != 0) data = nullptr;
  has_memory = is_strided &&
               (elements() == 0 || (data != nullptr && reinterpret_cast<std::intptr_t>(data) != offset * element_size));
  aoti_torch_get_device_type(tensor.get(), &device_type);
  aoti_torch_get_device_index(tensor.get(), &device_index);
  if (is_meta()) data = kFreshMemory + offset * element_size;
}

TensorView::TensorView(const TensorView& like, const std::vector<int64_t>& of_sizes,
                       const std::vector<int64_t>& of_strides, DType of_dtype)
    : data(kFreshMemory),
      scalar_type(scalar_type_of(of_dtype)),
      dtype(of_dtype),
      is_floating(true),
      element_size(static_cast<int64_t>(size_of(of_dtype))),
      has_memory(false),
      device_type(like.device_type),
      device_index(like.device_index),
      rank(static_cast<int64_t>(of_sizes.size())),
      sizes(of_sizes.data()),
      strides(of_strides.data()) {}

bool TensorView::is_meta() const { return device_type == aoti_torch_device_type_meta(); }

bool TensorView::is_cpu() const { return device_type == aoti_torch_device_type_cpu(); }

int64_t TensorView::elements() const { return std::accumulate(sizes, sizes + rank, int64_t{1}, std::multiplies<>()); }

bool TensorView::is_contiguous() const {
  int64_t expected = 1;
  for (int64_t d = rank - 1; d >= 0; --d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool TensorView::is_non_overlapping_and_dense() const {
  if (is_contiguous()) return true;
  std::vector<int64_t> order;
  for (int64_t d = 0; d < rank; ++d) {
    if (sizes[d] != 1) order.push_back(d);
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (int64_t d : order) {
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool TensorView::has_sizes(const std::vector<int64_t>& expected) const {
  return static_cast<int64_t>(expected.size()) == rank && std::equal(sizes, sizes + rank, expected.begin());
}

bool TensorView::has_strides(const int64_t* expected) const {
  for (int64_t d = 0; d < rank; ++d) {
    if (sizes[d] != 1 && strides[d] != expected[d]) return false;
  }
  return true;
}

bool TensorView::walks_like(const TensorView& other) const {
  return rank == other.rank && std::equal(sizes, sizes + rank, other.sizes) && has_strides(other.strides);
}

std::pair<const char*, const char*> TensorView::extent() const {
  const char* const begin = static_cast<const char*>(data);
  if (elements() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t d = 0; d < rank; ++d) last += (sizes[d] - 1) * strides[d];
  return {begin, begin + (last + 1) * element_size};
}

std::vector<int64_t> sizes_of(const TensorView& tensor) { return {tensor.sizes, tensor.sizes + tensor.rank}; }

}  // namespace sluice
