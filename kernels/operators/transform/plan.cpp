#include "kernels/operators/transform/policy.h"
#include "kernels/operators/transform/transform.h"
#include "kernels/shared/common/int_math.h"

#include <cstdint>
#include <numeric>

namespace sluice {

namespace {

Walk walk_of(long long elements, long long inner, DType dtype) {
  if (inner == elements) return Walk::flat;
  return inner >= kLongRow * word_elements(dtype) ? Walk::rows : Walk::strided;
}

// Interpreted, rings walk everything as strided.
TransformKernel kernel_of(const TransformProblem& problem, bool direct, bool linked) {
  using enum TransformKernel;
  if (!direct) return problem.walk == Walk::flat && linked ? staged_flat : staged_strided;
  if (problem.walk == Walk::rows) return problem.whole_rows && linked ? direct_whole_rows : direct_rows;
  return problem.walk == Walk::flat ? direct_flat : direct_strided;
}

// Whether rows of `inner` contiguous elements are whole words, which the kernel counts in 31 bits.
bool are_whole_words(long long elements, long long inner, DType dtype) {
  const int width = word_elements(dtype);
  return inner % width == 0 && elements / width < 1LL << 31;
}

// Threads of a block that divide a row's vectors most evenly; the largest of several such numbers.
int threads_of_rows(long long vectors, const DeviceProperties& device) {
  int best = kTransformThreads;
  const auto idle = [&](int threads) {
    const long long tile = threads * linked_vectors(Walk::rows);
    return ceil_div<long long>(vectors, tile) * tile - vectors;
  };
  for (int threads = policy_of(device, kTransformPolicies).least_row_threads; threads <= kMostTransformThreads;
       threads += 32) {
    if (idle(threads) < idle(best)) best = threads;
  }
  return best;
}

}  // namespace

long long TransformProblem::vectors_per_row() const {
  const int width = word_elements(dtype);
  return ceil_div<long long>(inner + misalignment, width);
}

TransformProblem problem_of(const TransformParams& params) {
  long long elements = 1;
  for (int d = 0; d < params.rank; ++d) elements *= params.sizes[d];
  const auto address = reinterpret_cast<std::uintptr_t>(params.output.data);
  const long long width = word_elements(params.input.dtype);
  // Rows start at multiples of `step` after the first.
  long long step = width;
  for (int d = 1; d < params.rank; ++d) step = std::gcd(step, params.output.strides[d]);
  const long long first = static_cast<long long>(address / size_of(params.output.dtype) % width);
  const int misalignment = static_cast<int>(first % step + width - step);
  const bool neighbours = params.input.strides[0] == 1 && params.output.strides[0] == 1;
  const long long inner = params.sizes[0];
  const bool end_to_end = params.rank == 2 && params.input.strides[1] == inner && params.output.strides[1] == inner;
  const bool aligned = misalignment == 0 && reinterpret_cast<std::uintptr_t>(params.input.data) % kWordBytes == 0;
  const Walk walk = neighbours ? walk_of(elements, params.sizes[0], params.input.dtype) : Walk::strided;
  return {.elements = elements,
          .inner = params.sizes[0],
          .dtype = params.input.dtype,
          .misalignment = misalignment,
          .walk = walk,
          .whole_rows =
              walk == Walk::rows && end_to_end && aligned && are_whole_words(elements, inner, params.input.dtype)};
}

TransformProblem contiguous_problem(long long elements, long long inner, DType dtype) {
  const int width = word_elements(dtype);
  const int step = static_cast<int>(std::gcd<long long>(width, inner));
  return {.elements = elements,
          .inner = inner,
          .dtype = dtype,
          .misalignment = inner == elements ? 0 : width - step,
          .walk = walk_of(elements, inner, dtype),
          .whole_rows = walk_of(elements, inner, dtype) == Walk::rows && are_whole_words(elements, inner, dtype)};
}

TransformPlan plan_transform(const TransformProblem& problem, const ScheduleRequest& request,
                             const DeviceProperties& device, bool linked) {
  TransformPlan plan{{}, problem};
  if (problem.elements < 1 || problem.inner < 1) {
    refuse(plan, kNoElements);
    return plan;
  }
  const int width = word_elements(problem.dtype);
  const bool direct = request.automatic || request.schedule == Schedule::direct;
  const bool whole_rows = direct && linked && problem.whole_rows;
  const bool by_vectors = problem.walk == Walk::strided || whole_rows;  // over all rows
  const int vectors = whole_rows         ? 1
                      : direct && linked ? linked_vectors(problem.walk)
                                         : transform_vectors(problem.dtype);
  const long long rows = problem.rows(), vectors_per_row = problem.vectors_per_row();
  const bool cuts_rows = direct && linked && problem.walk == Walk::rows && !whole_rows;
  const int threads = cuts_rows ? threads_of_rows(vectors_per_row, device) : kTransformThreads;
  const long long tiles = rows * ceil_div<long long>(vectors_per_row, threads * vectors);

  plan.method = "transform";
  plan.which = kernel_of(problem, direct, linked);
  plan.kernel = name_of(plan.which);
  plan.vectors = vectors;
  plan.schedule = direct ? Schedule::direct : request.schedule;
  plan.alignment = plan.copy_width = kWordBytes;
  plan.threads = threads;
  plan.tile = threads * vectors * width;
  if (direct) {
    plan.grid = by_vectors ? ceil_div<long long>(rows * vectors_per_row, threads * vectors) : tiles;
    plan.reason = request.automatic
                      ? "auto: vectors through registers, because an elementwise pass shares nothing between threads "
                        "and enough loads are in flight without a ring"
                      : "forced: vectors through registers, no shared memory";
    // Without tensors in the chain, some kernels need fewer registers.
    plan.resident_blocks =
        resident_blocks(plan, linked ? 0 : transform_direct_blocks(size_of(problem.dtype), /*tensors=*/true), device);
  } else {
    const int stage_bytes = (threads * vectors + 1) * kWordBytes, producers = producer_threads(plan.schedule);
    const RingShape ring = shape_ring(stage_bytes, transform_resident_blocks(producers), tiles, request, device);
    const char* refused = refusal(plan.schedule, device);
    if (refused == nullptr && ring.depth == 0) refused = "the ring's stages must fit into the shared memory of a block";
    if (refused != nullptr) {
      refuse(plan, refused);
      return plan;
    }
    plan.threads += producers;
    plan.depth = ring.depth;
    plan.shared_memory = ring.depth * stage_bytes;
    plan.resident_blocks = ring.blocks;
    plan.copy_width = ring_copy_width(plan.schedule, stage_bytes, device);
    plan.grid = min_of<long long>(tiles, static_cast<long long>(device.multiprocessors) * ring.blocks);
    plan.reason = ring_reason(request);
  }
  check_grid(plan);
  return plan;
}

}  // namespace sluice
