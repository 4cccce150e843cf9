#include "ops/common/launch.h"

#include "kernels/operators/causal_conv1d/chunk/launch.h"
#include "kernels/operators/causal_conv1d/sequences_launch.h"
#include "kernels/operators/causal_conv1d/update_launch.h"
#include "kernels/operators/causal_conv1d/window_launch.h"
#include "kernels/operators/conv1d/dense/launch.h"
#include "kernels/operators/conv1d/launch.h"
#include "kernels/operators/filter2d/launch.h"
#include "kernels/operators/transform/launch.h"
#include "kernels/operators/transpose/launch.h"
#include "ops/cuda/check_cuda.h"

namespace sluice {
namespace {

cudaStream_t stream_of(const DeviceScope& device) { return static_cast<cudaStream_t>(device.stream()); }

void check_launch(const DeviceScope& device, cudaError_t status) { check_cuda(device.op(), status, device.index()); }

}  // namespace

void launch(const DeviceScope& device, const TransformParams& params, const TransformPlan& plan, const void* linked) {
  check_launch(device, launch_transform(params, plan, linked, stream_of(device)));
}

void launch(const DeviceScope& device, const Filter2dParams& params, const Filter2dPlan& plan, const void* linked) {
  check_launch(device, launch_filter2d(params, plan, linked, stream_of(device)));
}

void launch(const DeviceScope& device, const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
            void* workspace) {
  check_launch(device, launch_conv1d(params, plan, linked, workspace, stream_of(device)));
}

void launch(const DeviceScope& device, const TransposeParams& params) {
  check_launch(device, launch_transpose(params, stream_of(device)));
}

void launch(const DeviceScope& device, const SequencesParams& params) {
  check_launch(device, launch_sequences(params, *device.properties(), stream_of(device)));
}

void launch_states(const DeviceScope& device, const SequencesParams& params) {
  if (params.sequences.count * params.convolution.channels * params.sequences.columns == 0) return;
  check_launch(device, launch_states(params, stream_of(device)));
}

void launch(const DeviceScope& device, const UpdateParams& params) {
  const long long most = most_history(*device.properties(), params.input.dtype);
  check(params.history() <= most, device.op(), ": weight must have a history of at most ", most,
        " positions on this GPU, got (K - 1) * dilation = ", params.history());
  check_launch(device, launch_causal_conv1d_update(params, *device.properties(), stream_of(device)));
}

void launch(const DeviceScope& device, const ChunkParams& params, const ChunkPlan& plan, void* workspace) {
  check_launch(device, launch_chunk(params, plan, *device.properties(), workspace, stream_of(device)));
}

void launch(const DeviceScope& device, const WindowParams& params) {
  check_launch(device, launch_window(params, stream_of(device)));
}

void launch(const DeviceScope& device, const ZeroRowsParams& params) {
  check_launch(device, launch_zero_rows(params, stream_of(device)));
}

void launch(const DeviceScope& device, const OverlapParams& params) {
  check_launch(device, launch_overlap(params, stream_of(device)));
}

void launch(const DeviceScope& device, const DepthwiseOverlapParams& params) {
  check_launch(device, launch_depthwise_overlap(params, stream_of(device)));
}

void launch(const DeviceScope& device, const PackParams& params) {
  check_launch(device, launch_pack(params, stream_of(device)));
}

}  // namespace sluice
