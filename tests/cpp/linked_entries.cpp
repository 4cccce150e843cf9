// Every linked entry that a plan can name, for the tests and tools that compare them with the built modules: the link
// requests of problems that together reach every kernel, under every schedule and of every dtype.
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "kernels/linking/source.h"
#include "kernels/operators/conv1d/link.h"
#include "kernels/operators/conv_transpose1d/conv_transpose1d.h"
#include "kernels/operators/filter2d/link.h"
#include "kernels/operators/transform/link.h"
#include "kernels/shared/stages/parse.h"

using namespace sluice;

namespace {

constexpr long long kRow = 4096;  // contiguous elements, and whole words of every dtype

alignas(16) char memory[32];
void* address(bool aligned, DType dtype) { return memory + (aligned ? 0 : size_of(dtype)); }

class Entries {
 public:
  // Adds the entries of a problem under every schedule that takes it.
  template <class Params, class PlanOf>
  void add(const Params& params, DType dtype, PlanOf&& plan_of) {
    for (int s = 0; s < kSchedules; ++s) {
      const ScheduleRequest request{.automatic = false, .schedule = static_cast<Schedule>(s)};
      const auto plan = plan_of(problem_of(params), request, kH200, /*linked=*/true);
      if (plan.threads > 0) add_planned(plan, link_request(params, plan), dtype);
    }
  }

  void add_automatic(const Conv1dParams& params, DType dtype) {
    Conv1dProblem problem = problem_of(params);
    problem.input_channels = params.dense.input_channels;
    problem.groups = 1;
    problem.is_chained = true;
    add_automatic(params, problem, dtype);
  }
  void add_automatic(const Conv1dParams& params, const Conv1dProblem& problem, DType dtype) {
    const Conv1dPlan plan = plan_conv1d(problem, ScheduleRequest{}, kH200, /*linked=*/true);
    if (plan.which != Conv1dMethod::aten) add_planned(plan, link_request(params, plan), dtype);
    if (plan.dense.applies_pre_first) add(to_channels_last_link_request(params), dtype);
  }

  void add_automatic(const Filter2dParams& params, DType dtype) {
    const Filter2dPlan plan = plan_filter2d(problem_of(params), ScheduleRequest{}, kH200, /*linked=*/true);
    add_planned(plan, link_request(params, plan), dtype);
  }

  void print() const {
    for (const std::string& line : lines_) std::cout << line << "\n";
  }
  void print_sources() const {
    for (const auto& [kernel, source] : sources_) std::cout << kernel << '\0' << source << '\0';
  }

 private:
  // A kernel's entry has the name that its plan shows.
  void add_planned(const Plan& plan, const LinkRequest& request, DType dtype) {
    if (request.kernel.find("_" + std::string(plan.kernel) + "_") == std::string_view::npos) {
      std::cerr << request.kernel << " is the entry of a plan whose kernel is " << plan.kernel << "\n";
      std::exit(1);
    }
    add(request, dtype);
  }

  void add(const LinkRequest& request, DType dtype) {
    std::ostringstream line;
    const ChainCall& call = request.post.width > 0 ? request.post : request.pre;
    line << request.kernel << " " << request.module << " " << name_of(dtype) << " " << call.width << " " << call.slices;
    lines_.insert(line.str());
    sources_[std::string(request.kernel)] = chain_source(request);
  }

  std::set<std::string> lines_;
  std::map<std::string, std::string> sources_;  // by kernel
};

// Rows of `inner` elements, `apart` from one to the next.
void add_transform(Entries& entries, DType dtype, long long rows, long long inner, long long apart) {
  TransformParams params{};
  params.input.data = params.output.data = memory;
  params.input.dtype = params.output.dtype = dtype;
  params.rank = rows == 1 ? 1 : 2;
  params.sizes[0] = inner, params.sizes[1] = rows;
  params.input.strides[0] = params.output.strides[0] = 1;
  params.input.strides[1] = params.output.strides[1] = apart;
  entries.add(params, dtype, plan_transform);
}

void add_conv1d(Entries& entries, DType dtype, bool channels_last, int taps, bool aligned) {
  constexpr long long kChannels = 64;
  Conv1dParams params{};
  params.input.data = address(aligned, dtype);
  params.output.data = memory;
  params.input.dtype = params.weight.dtype = params.bias.dtype = params.history.dtype = params.output.dtype = dtype;
  params.batch = 2, params.channels = kChannels, params.length = params.output_length = kRow;
  params.multiplier = 1, params.taps = taps, params.stride = params.dilation = 1, params.padding = taps / 2;
  const long long strides[3] = {kChannels * kRow, channels_last ? 1 : kRow, channels_last ? kChannels : 1};
  for (int d = 0; d < 3; ++d) params.input.strides[d] = params.output.strides[d] = strides[d];
  entries.add(params, dtype, plan_conv1d);
  entries.add_automatic(params, problem_of(params), dtype);
  params.dilation = 3;
  entries.add_automatic(params, problem_of(params), dtype);
  params.dilation = 1;
  params.input.strides[2] *= 2;
  entries.add_automatic(params, problem_of(params), dtype);
  params.input.strides[2] /= 2;
  // With weights of another dtype, which tensor cores do not take.
  params.weight.dtype = dtype == DType::float32 ? DType::float16 : DType::float32;
  entries.add_automatic(params, problem_of(params), dtype);
}

// Convolutions that together use every tile, with a `post`.
void add_dense(Entries& entries, DType dtype, bool channels_last, int input_channels, int taps, int stride = 1,
               const char* post = nullptr) {
  for (int channels = 16; channels <= 256; channels += 16) {
    for (long long length : {100LL, 2208LL, kRow, 64 * kRow}) {
      Conv1dParams params{};
      params.input.data = params.output.data = params.weight.data = memory;
      params.input.dtype = params.weight.dtype = params.bias.dtype = params.output.dtype = dtype;
      params.dense = {.weight = {.data = memory, .dtype = dtype, .strides = {}},
                      .input_channels = input_channels,
                      .allows_tf32 = true};
      params.batch = 4, params.channels = channels, params.length = stride * length, params.output_length = length;
      params.multiplier = 1, params.taps = taps, params.stride = stride, params.dilation = 1;
      const auto set_strides = [&](Operand<3>& operand, long long c, long long l) {
        operand.strides[0] = c * l, operand.strides[1] = channels_last ? 1 : l,
        operand.strides[2] = channels_last ? c : 1;
      };
      set_strides(params.input, input_channels, params.length);
      set_strides(params.output, channels, length);
      if (post != nullptr && !parse_chain(post, kMaxOperands, params.post).empty()) std::abort();
      params.post.set_precision(dtype, dtype);
      for (Operand<3>& operand : params.post_operands) operand.dtype = dtype;
      entries.add_automatic(params, dtype);
    }
  }
}

// Snake before enough output channels that it is applied while the input is converted to channels-last: from positions,
// from a number of channels that is not a multiple of eight, and from whole words of channels.
void add_converted(Entries& entries, DType dtype, bool channels_last, int input_channels) {
  constexpr long long kLength = 4096, kChannels = 2048;
  Conv1dParams params{};
  params.input.data = params.output.data = params.weight.data = memory;
  params.input.dtype = params.weight.dtype = params.bias.dtype = params.output.dtype = dtype;
  params.dense = {
      .weight = {.data = memory, .dtype = dtype, .strides = {}}, .input_channels = input_channels, .allows_tf32 = true};
  params.batch = 4, params.channels = kChannels, params.length = params.output_length = kLength;
  params.multiplier = 1, params.taps = 3, params.stride = params.dilation = params.padding = 1;
  params.input.strides[0] = input_channels * kLength;
  params.input.strides[channels_last ? 2 : 1] = channels_last ? input_channels : kLength;
  params.input.strides[channels_last ? 1 : 2] = 1;
  params.output.strides[0] = kChannels * kLength, params.output.strides[1] = kLength, params.output.strides[2] = 1;
  if (!parse_chain("snake(1,1)", 0, params.pre).empty()) std::abort();
  params.pre.set_precision(dtype, dtype);
  entries.add_automatic(params, dtype);
}

// Convolutions with few output channels.
void add_few_outputs(Entries& entries, DType dtype, bool channels_last, int channels, int taps) {
  constexpr long long kInputs = 32, kLength = 16 * kRow;
  Conv1dParams params{};
  params.input.data = params.output.data = params.weight.data = memory;
  params.input.dtype = params.weight.dtype = params.bias.dtype = params.output.dtype = dtype;
  params.dense = {.weight = {.data = memory, .dtype = dtype, .strides = {}}, .input_channels = kInputs};
  params.batch = 4, params.channels = channels, params.length = params.output_length = kLength;
  params.multiplier = 1, params.taps = taps, params.stride = params.dilation = 1;
  const auto set_strides = [&](Operand<3>& operand, long long c) {
    operand.strides[0] = c * kLength, operand.strides[1] = channels_last ? 1 : kLength,
    operand.strides[2] = channels_last ? c : 1;
  };
  set_strides(params.input, kInputs);
  set_strides(params.output, channels);
  entries.add_automatic(params, dtype);
}

// Transposed convolutions of a stride that together use every tile of interleaved results.
void add_transposed(Entries& entries, DType dtype, int input_channels) {
  constexpr int kStride = 2, kTaps = 4;
  for (int channels = 16; channels <= 256; channels += 16) {
    for (long long length : {100LL, 2208LL, kRow, 64 * kRow}) {
      Conv1dParams params{};
      params.input.data = params.output.data = params.weight.data = memory;
      params.input.dtype = params.weight.dtype = params.bias.dtype = params.output.dtype = dtype;
      params.dense = {.weight = {.data = memory, .dtype = dtype, .strides = {}},
                      .input_channels = input_channels,
                      .allows_tf32 = true};
      params.batch = 4, params.channels = channels, params.length = length, params.output_length = kStride * length;
      params.multiplier = 1, params.taps = kTaps, params.stride = kStride, params.padding = params.dilation = 1;
      const long long strides[3] = {channels * length, length, 1};
      for (int d = 0; d < 3; ++d) params.input.strides[d] = params.output.strides[d] = strides[d];
      entries.add_automatic(interleaved_params(params, component_ranges(params).of[0]), dtype);
    }
  }
}

struct ImageLayout {
  long long width = kRow, row = kRow;  // elements; of a row to the next
  bool channels_last = false;
};

void add_filter2d(Entries& entries, DType dtype, int side, bool separable, bool aligned,
                  const Filter2dSampling& sampling = {}, const ImageLayout& layout = {}) {
  constexpr long long kHeight = 64, kPlanes = 2;
  Filter2dParams params{};
  params.image.data = address(aligned, dtype);
  params.row_taps.data = separable ? memory : nullptr;
  params.output.data = memory;
  params.image.dtype = params.output.dtype = dtype;
  params.batch = params.channels = kPlanes;
  params.height = params.output_height = kHeight, params.width = params.output_width = layout.width;
  params.kernel_height = params.kernel_width = side, params.top = params.left = side / 2;
  const bool last = layout.channels_last;
  const long long strides[4] = {kPlanes * kHeight * layout.row, last ? 1 : kHeight * layout.row,
                                (last ? kPlanes : 1) * layout.row, last ? kPlanes : 1};
  for (int d = 0; d < 4; ++d) params.image.strides[d] = params.output.strides[d] = strides[d];
  params.sampling = sampling;
  entries.add(params, dtype, plan_filter2d);
  entries.add_automatic(params, dtype);
}

}  // namespace

// Dense kernels and the sources of their chains, each followed by a zero.
int print_dense_sources(const char* post) {
  Entries entries;
  for (DType dtype : {DType::float16, DType::bfloat16}) {
    for (bool channels_last : {false, true}) {
      for (int taps : {1, 7}) {
        for (int input_channels : {16, 64, 256})
          add_dense(entries, dtype, channels_last, input_channels, taps, /*stride=*/1, post);
      }
    }
  }
  entries.print_sources();
  return 0;
}

// A line each: kernel, module, dtype, and the width and number of the vectors in a call of `post`.
int print_entries() {
  Entries entries;
  for (DType dtype : kDTypes) {
    add_transform(entries, dtype, 1, kRow, 0);
    add_transform(entries, dtype, 8, kRow, 2 * kRow);
    add_transform(entries, dtype, 8, kRow, kRow);
    add_transform(entries, dtype, kRow, 8, 16);
    for (bool channels_last : {false, true}) {
      for (int taps : {1, 7}) {
        for (int input_channels : {16, 64, 256}) {
          for (int stride : {1, 2}) add_dense(entries, dtype, channels_last, input_channels, taps, stride);
        }
      }
      for (int channels : {1, 4}) add_few_outputs(entries, dtype, channels_last, channels, /*taps=*/7);
      for (int taps : {2, 6, 64, 200, 1500, 6000}) {
        for (bool aligned : {false, true}) add_conv1d(entries, dtype, channels_last, taps, aligned);
      }
    }
    for (int input_channels : {16, 64, 256}) add_transposed(entries, dtype, input_channels);
    for (int input_channels : {64, 65}) {
      for (bool channels_last : {false, true}) add_converted(entries, dtype, channels_last, input_channels);
    }
    for (int side : {3, 5, 7, 9, 11}) {
      for (bool aligned : {false, true}) add_filter2d(entries, dtype, side, false, aligned);
    }
    for (int side : {3, 7}) add_filter2d(entries, dtype, side, true, true);
    add_filter2d(entries, dtype, 7, false, true, {.border = Border::reflect});
    add_filter2d(entries, dtype, 7, false, true, {.stride_down = 2});
    for (int side : {3, 5, 7, 9}) {
      add_filter2d(entries, dtype, side, false, false, {}, {.channels_last = true});
      add_filter2d(entries, dtype, side, false, false, {}, {.width = 40, .row = 1LL << 29});  // patches
    }
  }
  for (int side : {3, 5}) {
    add_filter2d(entries, DType::float32, side, false, true, {.bytes = true}, {.channels_last = true});
  }
  for (int side : {3, 5, 7}) add_filter2d(entries, DType::float32, side, false, true, {.bytes = true});
  add_filter2d(entries, DType::float32, 7, true, true, {.bytes = true});
  entries.print();
  return 0;
}
