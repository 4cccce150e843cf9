#include "kernels/common/int_math.h"
#include "kernels/transform/tile.h"
#include "kernels/transform/transform.h"

#include <cstdint>

namespace sluice {

TransformProblem problem_of(const TransformParams& params) {
  long long elements = 1;
  for (int d = 0; d < params.rank; ++d) elements *= params.sizes[d];
  const auto address = reinterpret_cast<std::uintptr_t>(params.output);
  const int width = word_elements(params.input_dtype);
  const int misalignment = static_cast<int>(address / size_of(params.output_dtype) % width);
  Walk walk = Walk::strided;
  if (params.input_strides[0] == 1 && params.output_strides[0] == 1) {
    walk = walk_of(elements, params.sizes[0], params.input_dtype);
  }
  return {elements, params.sizes[0], params.input_dtype, misalignment, walk};
}

Walk walk_of(long long elements, long long inner, DType dtype) {
  if (inner == elements) return Walk::flat;
  return inner >= kLongRow * word_elements(dtype) ? Walk::rows : Walk::strided;
}

Plan plan_transform(const TransformProblem& problem, const ScheduleRequest& request, const DeviceProperties& device,
                    bool linked) {
  const int width = word_elements(problem.dtype);
  const bool direct = request.automatic || request.schedule == Schedule::direct;
  const int vectors = direct && linked ? linked_vectors(problem.walk) : transform_vectors(problem.dtype);
  const long long rows = problem.elements / problem.inner;
  // A row's vectors follow the output's alignment; with several rows each may start anywhere in a vector.
  const long long vectors_per_row = ceil_div<long long>(problem.inner + (rows > 1 ? width - 1 : problem.misalignment), width);
  const long long tiles = rows * ceil_div<long long>(vectors_per_row, kTransformThreads * vectors);

  Plan plan;
  plan.schedule = direct ? Schedule::direct : request.schedule;
  plan.threads = kTransformThreads;
  plan.tile = kTransformThreads * vectors * width;
  if (direct) {
    plan.depth = 1;
    plan.grid = problem.walk == Walk::strided ? ceil_div<long long>(rows * vectors_per_row, kTransformThreads * vectors) : tiles;
    plan.reason = request.automatic
                      ? "auto: vectors through registers, because an elementwise pass shares nothing between threads "
                        "and enough loads are in flight without a ring"
                      : "forced: vectors through registers, no shared memory";
  } else {
    const int stage_bytes = (kTransformThreads * vectors + 1) * 16;
    const RingShape ring = shape_ring(stage_bytes, kTransformResidentBlocks, request.depth, device);
    if (ring.depth == 0) {
      plan.threads = 0;
      plan.reason = "the ring's stages must fit into the shared memory of a block";
      return plan;
    }
    plan.depth = ring.depth;
    plan.shared_memory = ring.depth * stage_bytes;
    plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
    plan.reason = request.depth > 0
                      ? "forced: a ring of tiles in shared memory, at the depth that was asked for"
                      : "forced: a ring of tiles in shared memory, deep enough for 48 KiB in flight a multiprocessor";
  }
  return plan;
}

}  // namespace sluice
