// On CUDA filter2d's own kernels; on the CPU aten's convolution between the passes of the chains.
#include <algorithm>

#include "kernels/common/geometry.h"
#include "kernels/filter2d/filter2d.h"
#include "ops/common/allocate.h"
#include "ops/common/aten.h"
#include "ops/common/checks.h"
#include "ops/stencil.h"
#include "ops/common/launch.h"
#include "ops/elementwise.h"
#ifdef SLUICE_CUDA_LIBRARY
#include "kernels/filter2d/launch.h"
#endif

namespace sluice {
#ifdef SLUICE_CUDA_LIBRARY
namespace {

// The stencil as launches of one batch dimension each: as a rule one, and more where the batch dimensions of image, result
// and operands do not merge into one.
struct Launches {
  Filter2dParams params;
  Geometry batches;  // strides: of the result, the image, then the operands of pre and of post
  int inner;         // the dimension of `batches` that a launch covers

  long long count() const {
    long long total = 1;
    for (int d = 0; d < batches.rank; ++d) total *= d == inner ? 1 : batches.sizes[d];
    return total;
  }
  bool aligned() const {
    for (long long i = 0; i < count(); ++i) {
      if (!is_aligned(at(i))) return false;
    }
    return true;
  }
  Filter2dParams at(long long index) const {
    Filter2dParams moved = params;
    const auto offset = [&](std::size_t tensor) {
      long long elements = 0, rest = index;
      for (int d = 0; d < batches.rank; ++d) {
        if (d == inner) continue;
        elements += rest % batches.sizes[d] * batches.strides[tensor][d];
        rest /= batches.sizes[d];
      }
      return elements;
    };
    std::size_t tensor = 0;
    moved.output = static_cast<char*>(moved.output) + offset(tensor++) * static_cast<long long>(size_of(moved.output_dtype));
    const auto move = [&](const void*& data, DType dtype) {
      data = static_cast<const char*>(data) + offset(tensor++) * static_cast<long long>(size_of(dtype));
    };
    move(moved.image, moved.dtype);
    for (int k = 0; k < moved.pre.operands; ++k) move(moved.pre_operands[k].data, moved.pre_operands[k].dtype);
    for (int k = 0; k < moved.post.operands; ++k) move(moved.post_operands[k].data, moved.post_operands[k].dtype);
    return moved;
  }
};

Launches launches_of(const Stencil& s, const TensorView& output) {
  const TensorView image(s.image), kernel(s.kernel);
  const int64_t rank = image.rank, batch_rank = std::max<int64_t>(rank - 3, 0);
  Launches launches{};
  Filter2dParams& params = launches.params;
  params.image = image.data;
  params.kernel = kernel.data;
  params.output = output.data;
  params.dtype = image.dtype;
  params.output_dtype = output.dtype;
  params.channels = channels_of(image);
  params.height = image.sizes[rank - 2];
  params.width = image.sizes[rank - 1];
  params.output_height = output.sizes[rank - 2];
  params.output_width = output.sizes[rank - 1];
  params.kernel_height = static_cast<int>(s.height);
  params.kernel_width = static_cast<int>(s.width);
  params.top = s.top;
  params.left = s.left;
  const int64_t* const strides = kernel.strides + (s.is_shared() ? 0 : 1);
  params.kernel_strides[0] = s.is_shared() ? 0 : kernel.strides[0];
  params.kernel_strides[1] = strides[0];
  params.kernel_strides[2] = s.row_kernel.has_value() ? 0 : strides[1];
  if (s.row_kernel.has_value()) {
    const TensorView row(*s.row_kernel);
    params.row_taps = row.data;
    params.row_taps_strides[0] = s.is_shared() ? 0 : row.strides[0];
    params.row_taps_strides[1] = row.strides[row.rank - 1];
  }
  if (s.bias.has_value()) {
    const TensorView bias(*s.bias);
    params.bias = bias.data;
    params.bias_stride = s.is_shared() ? 0 : bias.strides[0];
  }
  params.pre = s.pre.program;
  params.post = s.post.program;

  // All tensors' strides: over the batch dimensions for merging, and over channel, row and column.
  std::vector<std::vector<long long>> batch_strides;
  const auto place = [&](const int64_t* from, long long* to) {
    batch_strides.emplace_back(from, from + batch_rank);
    for (int64_t d = 1; d < 4; ++d) to[d] = rank - 4 + d < 0 ? 0 : from[rank - 4 + d];
  };
  place(output.strides, params.output_strides);
  place(image.strides, params.image_strides);
  const auto place_operands = [&](const Chain& chain, const std::vector<int64_t>& sizes, Operand<4>* operands) {
    for (std::size_t k = 0; k < chain.operands.size(); ++k) {
      operands[k] = {chain.operands[k].data, chain.operands[k].dtype, {}};
      place(chain.strides(k, sizes).data(), operands[k].strides);
    }
  };
  place_operands(s.pre, sizes_of(image), params.pre_operands);
  place_operands(s.post, s.sizes, params.post_operands);

  launches.batches = merge_dimensions({image.sizes, image.sizes + batch_rank}, batch_strides);
  const Geometry& batches = launches.batches;
  check(batches.rank > 0, s.op, ": image must have at most ", kMaxDims, " batch dimensions that do not merge, got ",
        image.shape());
  launches.inner = static_cast<int>(std::max_element(batches.sizes, batches.sizes + batches.rank) - batches.sizes);
  params.batch = batches.sizes[launches.inner];
  std::size_t tensor = 0;
  const auto take = [&](long long* to) { to[0] = batches.strides[tensor++][launches.inner]; };
  take(params.output_strides);
  take(params.image_strides);
  for (std::size_t k = 0; k < s.pre.operands.size(); ++k) take(params.pre_operands[k].strides);
  for (std::size_t k = 0; k < s.post.operands.size(); ++k) take(params.post_operands[k].strides);
  return launches;
}

}  // namespace

std::string run_stencil(const Stencil& s, const TensorView& output, Run run) {
  const Launches launches = launches_of(s, output);
  const DeviceScope device(s.op, output.device_index);
  const bool aligned = launches.aligned();  // all of them, because they run one kernel
  const auto plan_of = [&](const Filter2dParams& params, bool linked) {
    Filter2dProblem problem = problem_of(params);
    problem.aligned = aligned;
    return plan_filter2d(problem, s.schedule, properties_of(s.op, output.device_index), linked);
  };
  const Filter2dPlan plan = plan_of(launches.params, true);
  check(plan.threads > 0, s.op, ": schedule must be able to run here: ", plan.reason, ", got ", name_of(plan.schedule),
        " at depth ", s.schedule.depth);
  Form form = choose_form(s.op, link_request(launches.params, plan), device, output.elements(), run);
  if (run == Run::prepare) return std::move(form.reason);
  for (long long i = 0; i < launches.count(); ++i) {
    const Filter2dParams params = launches.at(i);
    device.check_launch(launch_filter2d(params, plan_of(params, form.kernel != nullptr), form.kernel, device.stream()));
  }
  return std::move(form.reason);
}
#else
namespace {

// The sums, by aten's convolution, unrounded: half types as float32, which aten does not promise to sum them in.
Tensor convolve(const Stencil& s) {
  const TensorView source(s.image);
  const DType dtype = source.dtype == DType::float64 ? DType::float64 : DType::float32;
  const auto cast = [&](const Tensor& tensor) {
    return TensorView(tensor).dtype == dtype ? tensor : aten::to_dtype(tensor, dtype);
  };
  Tensor image = s.image;
  if (!s.pre.empty()) {
    image = allocate(s.op, sizes_of(source), contiguous_strides(sizes_of(source)), source.dtype, source);
    run_transform(s.op, source, TensorView(image), s.pre, ScheduleRequest{});
  }
  const int64_t rank = source.rank, groups = s.is_shared() ? 1 : channels_of(source);
  const int64_t planes = source.elements() / (source.sizes[rank - 2] * source.sizes[rank - 1]);
  image = aten::reshape(cast(image), {planes / groups, groups, source.sizes[rank - 2], source.sizes[rank - 1]});
  if (s.top != s.bottom || s.left != s.right) image = aten::pad_2d(image, s.left, s.right, s.top, s.bottom);
  const bool padded = s.top != s.bottom || s.left != s.right;
  const int64_t vertical = padded ? 0 : s.top, horizontal = padded ? 0 : s.left;
  std::optional<Tensor> bias;
  if (s.bias.has_value()) bias = cast(*s.bias);
  const auto kernel = [&](const Tensor& taps, int64_t height, int64_t width) {
    return aten::reshape(cast(taps), {groups, 1, height, width});
  };
  if (s.row_kernel.has_value()) {
    image = aten::convolution_2d(image, kernel(*s.row_kernel, 1, s.width), std::nullopt, 0, horizontal, groups);
    image = aten::convolution_2d(image, kernel(s.kernel, s.height, 1), bias, vertical, 0, groups);
  } else {
    image = aten::convolution_2d(image, kernel(s.kernel, s.height, s.width), bias, vertical, horizontal, groups);
  }
  return aten::reshape(image, s.sizes);
}

}  // namespace

std::string run_stencil(const Stencil& s, const TensorView& output, Run run) {
  s.pre.check_interpreted(s.op);
  s.post.check_interpreted(s.op);
  if (run == Run::prepare) return s.pre.empty() && s.post.empty() ? "there is no chain" : "the CPU needs no linking";
  run_transform(s.op, TensorView(convolve(s)), output, s.post, ScheduleRequest{});
  return {};
}
#endif

}  // namespace sluice
