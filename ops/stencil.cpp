#include "ops/stencil.h"

#include <algorithm>
#include <array>

#include "kernels/operators/filter2d/link.h"
#include "kernels/shared/common/geometry.h"
#include "ops/common/checks.h"
#include "ops/common/launch.h"
#include "ops/common/link.h"
#include "ops/common/plan_text.h"

namespace sluice {

namespace {

// The stencil as launches of one batch dimension each: usually one, more if the batch dimensions of image, result and
// operands do not merge into one.
struct Launches {
  Filter2dParams params;
  Geometry batches;  // strides: of the result, the image, then the operands of pre and of post
  int inner;         // the dimension of `batches` that a launch covers

  long long count() const {
    long long total = 1;
    for (int d = 0; d < batches.rank; ++d) total *= d == inner ? 1 : batches.sizes[d];
    return total;
  }
  // Whether the launches after the first are aligned.
  bool others_are_aligned() const {
    for (long long i = 1; i < count(); ++i) {
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
    const auto move = [&](Operand<4>& operand) {
      operand.data = operand.as<char>() + offset(tensor++) * static_cast<long long>(size_of(operand.dtype));
    };
    move(moved.output);
    if (moved.sampling.bytes) {
      moved.image.data = moved.image.as<char>() + offset(tensor++);
    } else {
      move(moved.image);
    }
    for (int k = 0; k < moved.pre.operands; ++k) move(moved.pre_operands[k]);
    for (int k = 0; k < moved.post.operands; ++k) move(moved.post_operands[k]);
    return moved;
  }
};

// (channel, row, column); a kernel shared by all channels has no channel, and a column of taps no columns.
Operand<3> kernel_of(const Stencil& s) {
  const TensorView kernel(s.kernel);
  const int64_t* const taps = kernel.strides + (s.is_shared() ? 0 : 1);
  const int64_t channel = s.is_shared() ? 0 : kernel.strides[0], column = s.row_kernel.has_value() ? 0 : taps[1];
  return operand_of<3>(kernel, std::array{channel, taps[0], column});
}

// (channel, column)
Operand<2> row_taps_of(const Stencil& s) {
  if (!s.row_kernel.has_value()) return {};
  const TensorView row(*s.row_kernel);
  return operand_of<2>(row, std::array{s.is_shared() ? 0 : row.strides[0], row.strides[row.rank - 1]});
}

// (channel)
Operand<1> bias_of(const Stencil& s) {
  if (!s.bias.has_value()) return {};
  const TensorView bias(*s.bias);
  return operand_of<1>(bias, std::array{s.is_shared() ? 0 : bias.strides[0]});
}

// The batch dimensions of all tensors, merged; `strides` are each tensor's over all its dimensions.
Geometry merge_batches(const Stencil& s, const std::vector<std::vector<int64_t>>& strides) {
  const TensorView image(s.image);
  const int64_t batch_rank = std::max<int64_t>(image.rank - 3, 0);
  std::vector<std::vector<long long>> of_batches;
  for (const std::vector<int64_t>& all : strides) of_batches.emplace_back(all.begin(), all.begin() + batch_rank);
  Geometry batches = merge_dimensions({image.sizes, image.sizes + batch_rank}, of_batches);
  check(batches.rank > 0, s.op, ": image must have at most ", kMaxDims, " batch dimensions that do not merge, got ",
        image.shape());
  return batches;
}

Launches launches_of(const Stencil& s, const TensorView& result) {
  const TensorView source(s.image);
  const int64_t rank = source.rank;
  // In the order of `Launches::batches`.
  std::vector<std::vector<int64_t>> strides = {{result.strides, result.strides + rank},
                                               {source.strides, source.strides + rank}};
  const std::size_t first_of_pre = strides.size(), first_of_post = first_of_pre + s.pre.operands.size();
  for (std::size_t k = 0; k < s.pre.operands.size(); ++k) strides.push_back(s.pre.strides(k, sizes_of(source)));
  for (std::size_t k = 0; k < s.post.operands.size(); ++k) strides.push_back(s.post.strides(k, s.sizes));
  Launches launches{.params = {}, .batches = merge_batches(s, strides), .inner = 0};
  const Geometry& batches = launches.batches;
  const int inner = static_cast<int>(std::max_element(batches.sizes, batches.sizes + batches.rank) - batches.sizes);
  launches.inner = inner;
  // (batch, channel, row, column)
  const auto strides_of = [&](std::size_t tensor) {
    const auto at = [&](int64_t d) { return d < 0 ? 0 : strides[tensor][d]; };
    // The stride of a single batch may be any number, and not a multiple of words.
    const long long batch = batches.sizes[inner] == 1 ? 0 : batches.strides[tensor][inner];
    return std::array<long long, 4>{batch, at(rank - 3), at(rank - 2), at(rank - 1)};
  };

  Filter2dParams& params = launches.params;
  static_cast<Filter2dTensors&>(params) = {
      .image = operand_of<4>(source, strides_of(1)),
      .output = operand_of<4>(result, strides_of(0)),
      .kernel = kernel_of(s),
      .row_taps = row_taps_of(s),
      .bias = bias_of(s),
      .batch = batches.sizes[inner],
      .channels = channels_of(source),
      .height = source.sizes[rank - 2],
      .width = source.sizes[rank - 1],
      .output_height = result.sizes[rank - 2],
      .output_width = result.sizes[rank - 1],
      .kernel_height = static_cast<int>(s.height),
      .kernel_width = static_cast<int>(s.width),
      .top = s.padding.top,
      .left = s.padding.left,
  };
  params.sampling = s.sampling;
  if (s.sampling.bytes) params.image.dtype = TensorView(s.kernel).dtype;
  s.pre.fill(params.pre, params.pre_operands, [&](std::size_t k) { return strides_of(first_of_pre + k); });
  s.post.fill(params.post, params.post_operands, [&](std::size_t k) { return strides_of(first_of_post + k); });
  return launches;
}

// The problem of all launches, which run one kernel.
Filter2dProblem problem_of(const Launches& launches) {
  Filter2dProblem problem = problem_of(launches.params);
  problem.aligned = problem.aligned && launches.others_are_aligned();
  return problem;
}

Filter2dPlan checked_plan(const Stencil& s, const Filter2dProblem& problem, const DeviceProperties& device,
                          bool linked) {
  const Filter2dPlan plan = plan_filter2d(problem, s.schedule, device, linked);
  check_plan(s.op, plan, s.schedule);
  return plan;
}

// Plans, then launches or links.
std::string run_on_gpu(const Stencil& s, const Launches& launches, const DeviceScope& device, long long elements,
                       Action action) {
  const bool chained = s.has_chains();
  const Filter2dProblem problem = problem_of(launches);
  Filter2dPlan plan = checked_plan(s, problem, *device.properties(), chained);
  Form form{.reason = kNoChain};
  if (chained) {
    form = choose_form(s.op, link_request(launches.params, plan), device, elements, action);
    if (form.kernel == nullptr) plan = checked_plan(s, problem, *device.properties(), /*linked=*/false);
  }
  if (action == Action::prepare) return form.why();
  launch(device, launches.params, plan, form.kernel);
  for (long long i = 1; i < launches.count(); ++i) {
    const Filter2dParams params = launches.at(i);
    Filter2dProblem moved = problem_of(params);
    moved.aligned = problem.aligned;
    plan = checked_plan(s, moved, *device.properties(), form.kernel != nullptr);
    launch(device, params, plan, form.kernel);
  }
  return {};
}

std::string run_on_cpu(const Stencil& s, const TensorView& output, const DeviceScope& device, Action action) {
  s.pre.check_interpreted(s.op);
  s.post.check_interpreted(s.op);
  if (action == Action::prepare) return s.has_chains() ? kOnCpu : kNoChain;
  const Launches launches = launches_of(s, output);
  for (long long i = 0; i < launches.count(); ++i) launch(device, launches.at(i), {}, nullptr);
  return {};
}

}  // namespace

std::string run_stencil(const Stencil& s, const TensorView& output, const CallMode& mode) {
  if (mode.plans()) {
    const bool chained = s.has_chains();
    const Filter2dProblem problem = problem_of(launches_of(s, output));
    return plan_text(checked_plan(s, problem, mode.device, chained && mode.linked), mode, chained, output.elements());
  }
  const DeviceScope device(s.op, output.device_index);
  if (device.is_cpu()) return run_on_cpu(s, output, device, mode.action);
  return run_on_gpu(s, launches_of(s, output), device, output.elements(), mode.action);
}

}  // namespace sluice
