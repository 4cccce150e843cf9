#include "ops/convolution/plan.h"

#include <algorithm>
#include <utility>

#include "kernels/operators/conv1d/aten_reason.h"
#include "kernels/operators/conv1d/by_rows.h"
#include "kernels/shared/common/int_math.h"
#include "ops/common/allocate.h"
#include "ops/common/plan_text.h"
#include "ops/convolution/params.h"
#include "ops/convolution/transposed.h"

namespace sluice {
namespace {

constexpr AtenReason kOnCpuReason("on a CPU only depthwise convolutions have kernels");

int64_t bytes_of(const std::vector<int64_t>& sizes, DType dtype) {
  return sizes[0] * sizes[1] * sizes[2] * static_cast<int64_t>(size_of(dtype));
}

// Makes the list of launches. Functions return why aten computes the convolution instead, or null.
class Planner {
 public:
  Planner(const PlanTarget& target, bool explains) : target_(target), explains_(explains) {
    launches_.links = target.linked;
  }

  const char* add(const Convolution& c, const Placed& input, const Placed& result);
  Launches take() { return std::move(launches_); }
  const LaunchesText& text() const { return text_; }

 private:
  const char* add_transposed(const Convolution& c, const Conv1dParams& whole, const Placed& input,
                             const Placed& result);
  const char* add_by_rows(const Convolution& c, const Conv1dParams& whole, Conv1dParams rows, const Placed& input,
                          const Placed& result);
  const char* add_converted(const Convolution& c, const Placed& input, const Placed& result);
  template <class ParamsOf>
  const char* add_kernels(const Convolution& c, int64_t count, const ParamsOf& params_of, const Placed& input,
                          const Placed& result);
  const char* add_passes(const Convolution& c, const Placed& input, const Placed& result, bool pre_first);
  void add_pass(const Convolution& c, const Placed& input, const Placed& output, const Chain& chain);

  // Memory that later launches do not use for themselves. Returns its offset in the workspace.
  int64_t reserve(int64_t bytes);
  // The same with a tensor of `sizes`. Both vectors must outlive the view.
  Placed reserve(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t bytes, DType dtype,
                 const TensorView& like);
  void describe(const std::string& detail);

  const PlanTarget target_;
  const bool explains_;  // the launches are for a text
  Launches launches_;
  LaunchesText text_;
  int64_t reserved_ = 0;
};

int64_t Planner::reserve(int64_t bytes) {
  constexpr int64_t kAlignment = 512;  // torch's
  const int64_t offset = reserved_;
  reserved_ = round_up(offset + bytes, kAlignment);
  launches_.workspace_bytes = std::max(launches_.workspace_bytes, reserved_);
  return offset;
}

Placed Planner::reserve(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t bytes,
                        DType dtype, const TensorView& like) {
  Placed tensor{TensorView(like, sizes, strides, dtype), Memory::workspace};
  tensor.view.data = reinterpret_cast<void*>(reserve(bytes));
  return tensor;
}

void Planner::describe(const std::string& detail) {
  if (detail.empty()) return;
  text_.detail += (text_.detail.empty() ? "" : "; ") + detail;
}

const char* Planner::add(const Convolution& c, const Placed& input, const Placed& result) {
  const Conv1dParams whole = make_params(c, input.view, result.view);
  if (c.is_transposed) return add_transposed(c, whole, input, result);
  if (target_.device != nullptr && is_depthwise(c)) {
    const std::optional<Conv1dParams> rows = faster_by_rows(whole, c.schedule, *target_.device);
    if (rows.has_value()) return add_by_rows(c, whole, *rows, input, result);
  }
  return add_kernels(c, 1, [&](int64_t) -> const Conv1dParams& { return whole; }, input, result);
}

const char* Planner::add_transposed(const Convolution& c, const Conv1dParams& whole, const Placed& input,
                                    const Placed& result) {
  const bool depthwise = is_depthwise(c), on_gpu = target_.device != nullptr;
  if (const char* reason = transposed_reason_for_aten(c, whole, on_gpu)) {
    if (on_gpu) check_forced(c, depthwise ? kTransposedForcedReason : kForcedReason);
    return reason;
  }
  if (!depthwise && c.stride > 1 && converts_results(whole)) return add_converted(c, input, result);
  const Components components(c, whole);
  if (explains_) describe(components.describe());
  return add_kernels(c, components.count(), [&](int64_t i) { return components.params_of(i); }, input, result);
}

// A kernel of rows between transpositions (kernels/operators/conv1d/by_rows.h).
const char* Planner::add_by_rows(const Convolution& c, const Conv1dParams& whole, Conv1dParams rows,
                                 const Placed& input, const Placed& result) {
  const auto sizes_of_rows = [&](int64_t length) {
    return std::vector<int64_t>{c.sizes[0], c.sizes[1], TransposeParams::pitch(length)};
  };
  const int64_t inside = bytes_of(sizes_of_rows(whole.length), whole.input.dtype),
                outside = bytes_of(sizes_of_rows(whole.output_length), result.view.dtype);
  rows.input.data = reinterpret_cast<void*>(reserve(inside));
  const std::vector<int64_t> strides = contiguous_strides(sizes_of_rows(whole.output_length));
  const Placed results = reserve(c.sizes, strides, outside, result.view.dtype, result.view);
  rows.output.data = results.view.data;
  launches_.list.push_back(
      TransposeLaunch{.params = input_to_rows(whole, rows.input), .from = input.memory, .to = Memory::workspace});
  if (explains_) describe("the input is transposed into rows of positions in a workspace, the result out of one");
  const Placed rows_of_input{input.view, Memory::workspace};  // the view is not read: `rows` has the operand
  const auto params_of_rows = [&](int64_t) -> const Conv1dParams& { return rows; };
  if (const char* reason = add_kernels(c, 1, params_of_rows, rows_of_input, results)) return reason;
  text_.first.workspace_bytes += inside + outside;
  launches_.list.push_back(TransposeLaunch{.params = output_from_rows(whole, rows.output, operand_of<3>(result.view)),
                                           .from = Memory::workspace,
                                           .to = result.memory});
  return nullptr;
}

// The kernel writes rows of channels, which are then transposed into the result.
const char* Planner::add_converted(const Convolution& c, const Placed& input, const Placed& result) {
  const int64_t pitch = TransposeParams::pitch(c.sizes[1]);
  const std::vector<int64_t> strides = {c.sizes[2] * pitch, 1, pitch};
  const int64_t bytes = bytes_of({c.sizes[0], pitch, c.sizes[2]}, result.view.dtype);
  const Placed rows = reserve(c.sizes, strides, bytes, result.view.dtype, result.view);
  if (explains_) describe("results are channels-last in a workspace, then transposed into the output");
  if (const char* reason = add_transposed(c, make_params(c, input.view, rows.view), input, rows)) return reason;
  text_.first.workspace_bytes += bytes;
  launches_.list.push_back(TransposeLaunch{.params = {.from = swapped(operand_of<3>(rows.view)),
                                                      .to = swapped(operand_of<3>(result.view)),
                                                      .batch = c.sizes[0],
                                                      .rows = c.sizes[2],
                                                      .columns = c.sizes[1]},
                                           .from = Memory::workspace,
                                           .to = result.memory});
  return nullptr;
}

// `count` launches into one result; `params_of(i)`: the params of launch i.
template <class ParamsOf>
const char* Planner::add_kernels(const Convolution& c, int64_t count, const ParamsOf& params_of, const Placed& input,
                                 const Placed& result) {
  const bool on_cpu = target_.device == nullptr, linked = target_.linked && c.has_chains();
  if (on_cpu && !is_depthwise(c)) return kOnCpuReason;
  const std::size_t begin = launches_.list.size();
  const int64_t workspace_before = launches_.workspace_bytes;
  bool needs_passes = false, pre_first = true;  // `pre` runs in every launch's conversion of the input, if at all
  launches_.list.reserve(begin + static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    launches_.list.emplace_back(std::in_place_type<KernelLaunch>, params_of(i), input.memory, result.memory);
    KernelLaunch& launch = std::get<KernelLaunch>(launches_.list.back());
    launch.workspace = reserved_;
    if (!on_cpu) {
      launch.plan = plan_conv1d(make_problem(c, launch.params), c.schedule, *target_.device, linked);
      if (launch.plan.which == Conv1dMethod::aten) {
        check_forced(c, launch.plan.reason);
        return launch.plan.reason;
      }
      check_plan(c.op, launch.plan, c.schedule);
    }
    const bool is_dense = launch.plan.which == Conv1dMethod::dense;
    needs_passes = needs_passes || (is_dense && !target_.linked && is_chained(launch.params, launch.plan));
    pre_first = pre_first && launch.plan.dense.applies_pre_first;
    launches_.workspace_bytes = std::max<int64_t>(launches_.workspace_bytes, reserved_ + launch.plan.workspace_bytes);
  }
  const KernelLaunch& first = std::get<KernelLaunch>(launches_.list[begin]);
  text_.first = first.plan;
  text_.components = first.params.interleave.components;
  text_.in_passes = needs_passes;
  if (needs_passes) {
    launches_.list.resize(begin);
    launches_.workspace_bytes = workspace_before;
    return add_passes(c, input, result, pre_first && !c.in_passes);
  }
  return nullptr;
}

// The kernel without chains, between passes of them. The bits are the linked kernel's, because the sums are not rounded
// in between.
const char* Planner::add_passes(const Convolution& c, const Placed& input, const Placed& result, bool pre_first) {
  LaunchesText text = text_;
  Convolution plain = c;
  plain.post.clear();
  plain.in_passes = true;
  if (!pre_first) {  // else a conversion of the input runs it, which needs no linker
    plain.pre.clear();
    plain.unsplit = c.unsplit || !c.pre.empty();
  }
  Placed source = input;
  const std::vector<int64_t> sizes = sizes_of(input.view), input_strides = layout_strides(input.view, sizes, 1);
  if (!pre_first && !c.pre.empty() && input.view.elements() > 0) {
    source = reserve(sizes, input_strides, bytes_of(sizes, input.view.dtype), input.view.dtype, input.view);
    add_pass(c, input, source, c.pre);
  }
  Placed target = result;
  // In the result's layout, on which it depends whether a transposed convolution has a kernel.
  const std::vector<int64_t> strides = c.is_transposed ? layout_strides(result.view, c.sizes, 1) : c.strides;
  if (!c.post.empty()) {
    plain.dtype = DType::float32;
    target = reserve(c.sizes, strides, bytes_of(c.sizes, plain.dtype), plain.dtype, result.view);
  }
  if (const char* reason = add(plain, source, target)) return reason;
  if (!c.post.empty()) add_pass(c, target, result, c.post);
  text_ = std::move(text);
  return nullptr;
}

void Planner::add_pass(const Convolution& c, const Placed& input, const Placed& output, const Chain& chain) {
  launches_.list.push_back(PassLaunch{.pass = plan_pass(c.op, target_.device, input.view, output.view, chain, {}),
                                      .input = input.memory,
                                      .output = output.memory});
}

void check_interpreted_on_cpu(const Convolution& c, const PlanTarget& target) {
  if (target.device != nullptr) return;
  c.pre.check_interpreted(c.op);
  c.post.check_interpreted(c.op);
}

}  // namespace

ConvolutionPlan plan_convolution(const Convolution& c, const TensorView& input, const Placed& result,
                                 const PlanTarget& target) {
  check_interpreted_on_cpu(c, target);
  Planner planner(target, /*explains=*/false);
  if (const char* reason = planner.add(c, {input}, result)) return Aten{reason};
  return planner.take();
}

std::string explain_convolution(const Convolution& c, const TensorView& input, const Placed& result,
                                const CallMode& mode) {
  const bool chained = c.has_chains();
  const int64_t elements = result.view.elements();
  Planner planner({.device = &mode.device, .linked = chained && mode.linked}, /*explains=*/true);
  if (const char* reason = planner.add(c, {input}, result)) {
    return plan_text(aten_plan(reason), mode, chained, elements);
  }
  const LaunchesText& text = planner.text();
  std::string detail = describe(text.first);
  if (text.components > 0) {
    detail += "; channels of " + std::to_string(text.components) + " polyphase component" +
              (text.components > 1 ? "s" : "") + ", interleaved by the stores";
  }
  if (text.in_passes) detail += "; chains run as separate passes";
  if (!text.detail.empty()) detail += (detail.empty() ? "" : "; ") + text.detail;
  return plan_text(text.first, mode, chained, elements, detail);
}

}  // namespace sluice
