#include "kernels/linking/request.h"
#include "kernels/transform/launch.h"
#include "kernels/transform/tile.h"

namespace sluice {

bool is_flat(const TransformParams& params) {
  return params.rank == 1 && params.input_strides[0] == 1 && params.output_strides[0] == 1;
}

// The entries of linked.cu.
LinkRequest link_request(const TransformParams& params, const Plan& plan) {
#define SLUICE_SCHEDULES(prefix) {#prefix "_direct", #prefix "_sync", #prefix "_multi_stage", #prefix "_thread_scope"}
#define SLUICE_GEOMETRIES(dtype) {SLUICE_SCHEDULES(sluice_transform_##dtype##_strided), SLUICE_SCHEDULES(sluice_transform_##dtype##_flat)}
  static constexpr const char* kNames[4][2][4] = {SLUICE_GEOMETRIES(float32), SLUICE_GEOMETRIES(float16),
                                                  SLUICE_GEOMETRIES(bfloat16), SLUICE_GEOMETRIES(float64)};
#undef SLUICE_GEOMETRIES
#undef SLUICE_SCHEDULES
  const DType dtype = params.input_dtype;
  LinkRequest request{LinkModule::transform,
                      kNames[static_cast<int>(dtype)][is_flat(params)][static_cast<int>(plan.schedule)],
                      dtype == DType::float64,
                      {},
                      {}};
  request.post = linked_slot(params.program, params.operands, word_elements(dtype), transform_vectors(dtype));
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
