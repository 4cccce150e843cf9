#include <array>
#include <string>

#include "kernels/linking/request.h"
#include "kernels/transform/launch.h"
#include "kernels/transform/policy.h"

namespace sluice {

namespace {

constexpr const char* kWalkNames[] = {"flat", "rows", "strided"};  // of Walk

// The entries of linked.cu: sluice_transform_<dtype>_<walk>_<schedule>.
std::string_view entry_name(DType dtype, Walk walk, Schedule schedule) {
  static const auto names = [] {
    std::array<std::array<std::array<std::string, kSchedules>, 3>, 4> made;
    for (int d = 0; d < 4; ++d) {
      for (int w = 0; w < 3; ++w) {
        const std::string prefix = std::string("sluice_transform_") + name_of(static_cast<DType>(d)) + "_" + kWalkNames[w] + "_";
        for (int s = 0; s < kSchedules; ++s) made[d][w][s] = prefix + name_of(static_cast<Schedule>(s));
      }
    }
    return made;
  }();
  return names[static_cast<int>(dtype)][static_cast<int>(walk)][static_cast<int>(schedule)];
}

}  // namespace

// Rings take rows as strided ones.
LinkRequest link_request(const TransformParams& params, const Plan& plan) {
  const DType dtype = params.input_dtype;
  const bool direct = plan.schedule == Schedule::direct;
  const Walk walk = problem_of(params).walk;
  const Walk entry = walk == Walk::rows && !direct ? Walk::strided : walk;
  LinkRequest request{
      {LinkFamily::transform, dtype, !direct}, entry_name(dtype, entry, plan.schedule), dtype == DType::float64, {}, {}};
  request.post = linked_slot(params.program, params.operands, word_elements(dtype),
                             direct ? linked_vectors(walk) : transform_vectors(dtype));
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  return request;
}

}  // namespace sluice
