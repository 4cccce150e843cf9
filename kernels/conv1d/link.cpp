#include "kernels/conv1d/launch.h"
#include "kernels/conv1d/tile.h"
#include "kernels/linking/request.h"

namespace sluice {

bool is_plain(const Conv1dParams& params, const Conv1dPlan& plan) {
  const int most = plan.layout == Conv1dLayout::channels_last ? kShortChannelTaps : conv1d_word_elements(params.input_dtype);
  return plan.schedule == Schedule::direct && params.taps <= most && params.stride == 1 && params.dilation == 1 &&
         params.pre.empty();
}

// The entries of linked.cu.
LinkRequest link_request(const Conv1dParams& params, const Conv1dPlan& plan) {
#define SLUICE_ENTRIES(prefix) \
  {#prefix "_direct", #prefix "_sync", #prefix "_multi_stage", #prefix "_thread_scope", #prefix "_plain"}
#define SLUICE_DTYPES(layout)                                                                               \
  {                                                                                                         \
    SLUICE_ENTRIES(sluice_conv1d_##layout##_float32), SLUICE_ENTRIES(sluice_conv1d_##layout##_float16),     \
        SLUICE_ENTRIES(sluice_conv1d_##layout##_bfloat16), SLUICE_ENTRIES(sluice_conv1d_##layout##_float64) \
  }
  static constexpr const char* kNames[2][4][kSchedules + 1] = {SLUICE_DTYPES(rows), SLUICE_DTYPES(channels)};
#undef SLUICE_DTYPES
#undef SLUICE_ENTRIES
  const DType dtype = params.input_dtype;
  const bool channels_last = plan.layout == Conv1dLayout::channels_last;
  const int entry = is_plain(params, plan) ? kSchedules : static_cast<int>(plan.schedule);
  LinkRequest request{
      {channels_last ? LinkFamily::conv1d_channels : LinkFamily::conv1d_rows, dtype, plan.schedule != Schedule::direct},
      kNames[channels_last][static_cast<int>(dtype)][entry],
      dtype == DType::float64,
      {},
      {}};
  const int width = conv1d_word_elements(dtype);
  request.pre = linked_slot(params.pre, params.pre_operands, width, 1);
  request.post = channels_last ? linked_slot(params.post, params.post_operands, width, kPositions)
                               : linked_slot(params.post, params.post_operands, conv1d_row_outputs(dtype), 1);
  request.dtypes[static_cast<int>(LinkedTensor::output)] = params.output_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::weight)] = params.weight_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::bias)] = params.bias_dtype;
  request.dtypes[static_cast<int>(LinkedTensor::history)] = params.history_dtype;
  return request;
}

}  // namespace sluice
