#include "ops/allocate.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <numeric>

namespace sluice {

Tensor allocate(const char* op, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, DType dtype,
                const TensorView& like) {
  AtenTensorHandle handle = nullptr;
  const AOTITorchError status =
      aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                               static_cast<int32_t>(scalar_type_of(dtype)), like.device_type, like.device_index, &handle);
  // The wrapper makes torch.OutOfMemoryError of this text: torch's own type does not cross the stable ABI.
  check(status == 0, op, ": out of memory: torch could not allocate ", shape_text(sizes), " of ", name_of(dtype), " on ",
        like.device());
  return Tensor(handle);
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

}  // namespace sluice
