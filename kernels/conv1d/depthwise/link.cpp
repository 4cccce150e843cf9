#include <array>
#include <string>

#include "kernels/conv1d/launch.h"
#include "kernels/conv1d/depthwise/policy.h"
#include "kernels/linking/request.h"

namespace sluice {

namespace {

constexpr const char* kLayoutNames[] = {"rows", "channels"};

constexpr int kEntries = kSchedules + 2;

// The entries of linked.cu: sluice_conv1d_<layout>_<dtype>_<schedule>, and behind the schedules the other kernels of
// `direct`.
std::string_view entry_name(bool channels_last, DType dtype, int entry) {
  static const auto names = [] {
    std::array<std::array<std::array<std::string, kEntries>, 4>, 2> made;
    for (int l = 0; l < 2; ++l) {
      for (int d = 0; d < 4; ++d) {
        const std::string prefix = std::string("sluice_conv1d_") + kLayoutNames[l] + "_" + name_of(static_cast<DType>(d)) + "_";
        for (int s = 0; s < kSchedules; ++s) made[l][d][s] = prefix + name_of(static_cast<Schedule>(s));
        made[l][d][kSchedules] = prefix + "plain";
        made[l][d][kSchedules + 1] = prefix + "few_taps";
      }
    }
    return made;
  }();
  return names[channels_last][static_cast<int>(dtype)][entry];
}

}  // namespace

LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
  const DType dtype = params.input_dtype;
  const DepthwiseKernel kernel = plan.depthwise.which;
  const bool channels_last = takes_channels(kernel), few_taps = takes_few_taps(kernel);
  const bool own_entry = few_taps || kernel == DepthwiseKernel::plain_rows;
  const int entry = own_entry ? kSchedules + few_taps : static_cast<int>(plan.schedule);
  LinkRequest request{
      {channels_last ? LinkFamily::conv1d_channels : LinkFamily::conv1d_rows, dtype, plan.schedule != Schedule::direct},
      entry_name(channels_last, dtype, entry),
      dtype == DType::float64,
      {},
      {}};
  const int width = word_elements(dtype);
  request.pre = linked_slot(params.pre, params.pre_operands, width, 1);
  if (few_taps) {
    const int vector = channels_last ? kFewTapsChannels : width;
    request.post = linked_slot(params.post, params.post_operands, vector, kFewTapsChained / vector);
  } else {
    request.post = channels_last ? linked_slot(params.post, params.post_operands, width, kPositions)
                                 : linked_slot(params.post, params.post_operands, conv1d_row_outputs(dtype), 1);
  }
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history_dtype;
  return request;
}

}  // namespace sluice
