#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/transform/launch.h"

namespace sluice {

template <class Element>
cudaError_t launch_transform_as(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream);

cudaError_t launch_transform(const TransformParams& params, const Plan& plan, const void* linked, cudaStream_t stream) {
  switch (params.input_dtype) {
    case DType::float32: return launch_transform_as<float>(params, plan, linked, stream);
    case DType::float16: return launch_transform_as<__half>(params, plan, linked, stream);
    case DType::bfloat16: return launch_transform_as<__nv_bfloat16>(params, plan, linked, stream);
    case DType::float64: return launch_transform_as<double>(params, plan, linked, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace sluice
