// Depthwise convolutions of channels-last tensors by kernels of rows (kernels/conv1d/by_rows.h).
#include "kernels/conv1d/by_rows.h"

#include "ops/common/allocate.h"
#include "ops/convolution/launches.h"
#include "ops/convolution/params.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/transpose/launch.h"
#include "ops/common/launch.h"
#endif

namespace sluice {

std::optional<std::string> run_by_rows(const Convolution& c, const Conv1dParams& whole, const TensorView& result,
                                       const CallMode& mode, const OutputOf& output) {
#ifdef SLUICE_CUDA_LIBRARY
  const DeviceProperties& properties = mode.plans() ? mode.device : properties_of(c.op, result.device_index);
#else
  if (!mode.plans()) return std::nullopt;
  const DeviceProperties& properties = mode.device;
#endif
  if (!is_depthwise(c)) return std::nullopt;
  std::optional<Conv1dParams> rows = faster_by_rows(whole, c.schedule, properties);
  if (!rows.has_value()) return std::nullopt;
  const auto sizes_of_rows = [&](int64_t length) {
    return std::vector<int64_t>{c.sizes[0], c.sizes[1], TransposeParams::pitch(length)};
  };
  const std::vector<int64_t> inside = sizes_of_rows(whole.length), outside = sizes_of_rows(whole.output_length);
  const std::vector<int64_t> inside_strides = contiguous_strides(inside), outside_strides = contiguous_strides(outside);
  const TensorView rows_view(result, c.sizes, outside_strides, c.dtype);
  rows->output.data = rows_view.data;
  std::optional<TensorView> target;
  std::optional<Tensor> input, results;
  const auto allocated = [&] {
    target.emplace(output());
    input = allocate(c.op, inside, inside_strides, whole.input.dtype, result);
    results = allocate(c.op, outside, outside_strides, c.dtype, result);
    rows->input.data = TensorView(*input).data;
#ifdef SLUICE_CUDA_LIBRARY
    const DeviceScope device(c.op, result.device_index);
    device.check_launch(launch_transpose(input_to_rows(whole, rows->input), device.stream()));
#endif
    TensorView filled = rows_view;
    filled.data = TensorView(*results).data;
    return filled;
  };
  const auto bytes = [](const std::vector<int64_t>& sizes, DType dtype) {
    return sizes[0] * sizes[1] * sizes[2] * static_cast<int64_t>(size_of(dtype));
  };
  const Launch launch{.detail = "the input is transposed into rows of positions in a workspace, the result out of one",
                      .workspace_bytes = bytes(inside, whole.input.dtype) + bytes(outside, c.dtype)};
  const std::optional<std::string> answer = run_problem(c, *rows, rows_view, mode, allocated, launch);
#ifdef SLUICE_CUDA_LIBRARY
  if (answer.has_value() && mode.computes()) {
    const DeviceScope device(c.op, result.device_index);
    device.check_launch(
        launch_transpose(output_from_rows(whole, rows->output, operand_of<3>(*target)), device.stream()));
  }
#endif
  return answer;
}

}  // namespace sluice
