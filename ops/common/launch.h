// From an op to its kernels: launches on a GPU's current stream in _C_cuda (ops/cuda/launch.cpp), loops that torch's
// threads share in _C (ops/cpu). `linked` is the kernel with its chains; where it is null, the chains are interpreted.
// The CPU's kernels take no plan.
#pragma once

#include "kernels/operators/causal_conv1d/chunk/chunk.h"
#include "kernels/operators/causal_conv1d/depthwise_overlap.h"
#include "kernels/operators/causal_conv1d/sequences.h"
#include "kernels/operators/causal_conv1d/update.h"
#include "kernels/operators/causal_conv1d/window.h"
#include "kernels/operators/conv1d/conv1d.h"
#include "kernels/operators/filter2d/filter2d.h"
#include "kernels/operators/transform/transform.h"
#include "kernels/operators/transpose/transpose.h"
#include "ops/common/device.h"

namespace sluice {

void launch(const DeviceScope& device, const TransformParams& params, const TransformPlan& plan, const void* linked);
void launch(const DeviceScope& device, const Filter2dParams& params, const Filter2dPlan& plan, const void* linked);
// On the CPU a depthwise convolution. `workspace`: the plan's.
void launch(const DeviceScope& device, const Conv1dParams& params, const Conv1dPlan& plan, const void* linked,
            void* workspace);
// Plans for the CPU have no transpositions.
void launch(const DeviceScope& device, const TransposeParams& params);
// All results and states. There is at least one result, or one column of state that may change.
void launch(const DeviceScope& device, const SequencesParams& params);
void launch_states(const DeviceScope& device, const SequencesParams& params);
void launch(const DeviceScope& device, const UpdateParams& params);
// There is at least one row with a channel.
void launch(const DeviceScope& device, const WindowParams& params);
void launch(const DeviceScope& device, const ZeroRowsParams& params);
void launch(const DeviceScope& device, const OverlapParams& params);
// Plans for the CPU have no chunks.
void launch(const DeviceScope& device, const ChunkParams& params, const ChunkPlan& plan, void* workspace);
// On GPUs alone.
void launch(const DeviceScope& device, const DepthwiseOverlapParams& params);
void launch(const DeviceScope& device, const PackParams& params);

}  // namespace sluice
