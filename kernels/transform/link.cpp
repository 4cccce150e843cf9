#include "kernels/linking/request.h"
#include "kernels/transform/launch.h"
#include "kernels/transform/tile.h"

namespace sluice {

// The entries of linked.cu. Rings take rows as strided ones.
LinkRequest link_request(const TransformParams& params, const Plan& plan) {
#define SLUICE_SCHEDULES(prefix) {#prefix "_direct", #prefix "_sync", #prefix "_multi_stage", #prefix "_thread_scope"}
#define SLUICE_WALKS(prefix)                                                                      \
  {                                                                                               \
    SLUICE_SCHEDULES(prefix##_flat), {#prefix "_rows_direct"}, SLUICE_SCHEDULES(prefix##_strided) \
  }
  static constexpr const char* kNames[4][3][kSchedules] = {
      SLUICE_WALKS(sluice_transform_float32), SLUICE_WALKS(sluice_transform_float16), SLUICE_WALKS(sluice_transform_bfloat16),
      SLUICE_WALKS(sluice_transform_float64)};
#undef SLUICE_WALKS
#undef SLUICE_SCHEDULES
  const DType dtype = params.input_dtype;
  const bool direct = plan.schedule == Schedule::direct;
  const Walk walk = problem_of(params).walk;
  const Walk entry = walk == Walk::rows && !direct ? Walk::strided : walk;
  LinkRequest request{{LinkFamily::transform, dtype, !direct},
                      kNames[static_cast<int>(dtype)][static_cast<int>(entry)][static_cast<int>(plan.schedule)],
                      dtype == DType::float64,
                      {},
                      {}};
  request.post = linked_slot(params.program, params.operands, word_elements(dtype),
                             direct ? linked_vectors(walk) : transform_vectors(dtype));
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
