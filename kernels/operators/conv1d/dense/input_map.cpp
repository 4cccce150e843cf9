#include "kernels/operators/conv1d/dense/input_map.h"

#include <cuda.h>

#include "kernels/operators/conv1d/dense/dense.h"
#include "kernels/shared/common/device.h"

namespace sluice {
namespace {

CUtensorMapSwizzle swizzle_of(int row_bytes) {
  switch (row_bytes) {
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    default: return CU_TENSOR_MAP_SWIZZLE_32B;
  }
}

}  // namespace

InputMap make_input_map(const Operand<3>& input, const long long (&sizes)[3], const DensePlan& plan) {
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));
  InputMap made;
  if (plan.map_copies == 0) return made;
  static const auto encode =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(driver_function("cuTensorMapEncodeTiled"));
  if (encode == nullptr) return made;
  const auto bytes = static_cast<cuuint64_t>(size_of(input.dtype));
  const auto size = [&](int d) { return static_cast<cuuint64_t>(sizes[d]); };
  // The stride of one sample or position is never used, but must be a whole word.
  const auto pitch = [&](int d) {
    return sizes[d] > 1 ? static_cast<cuuint64_t>(input.strides[d]) * bytes : kWordBytes;
  };
  const cuuint64_t dimensions[3] = {size(1), size(2), size(0)}, pitches[2] = {pitch(2), pitch(0)};
  const auto stride = static_cast<cuuint32_t>(plan.residues.stride);
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(plan.k_block()), (plan.map_rows - 1) * stride + 1, 1};
  const cuuint32_t steps[3] = {1, stride, 1};
  const CUresult status =
      encode(reinterpret_cast<CUtensorMap*>(&made.map),
             bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_UINT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, input.data, dimensions,
             pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(plan.row_bytes()),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status == CUDA_SUCCESS) made.rows = plan.map_rows, made.copies = plan.map_copies;
  return made;
}

}  // namespace sluice
