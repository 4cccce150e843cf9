#include "ops/convolution/transposed.h"

#include "kernels/operators/conv1d/aten_reason.h"
#include "ops/convolution/params.h"
#include "ops/pack.h"

namespace sluice {
namespace {

constexpr AtenReason kApart("the weight's output channels are not equally far apart");

// Whether the launches read a packed weight of this rank (ops/pack.h). A dense convolution of stride 1 is one launch.
bool have_form(const Conv1dParams& whole, bool in_ranges, int64_t rank) {
  if (!in_ranges) return whole.stride == 1 && rank > 1;
  return interleaves_positions(whole) == (rank > 1);
}

const void* packed_in_form(const Convolution& c, const Conv1dParams& whole, bool in_ranges) {
  const bool has_form = c.packed.has_value() && have_form(whole, in_ranges, TensorView(*c.packed).rank);
  return has_form ? whole.dense.packed : nullptr;
}

}  // namespace

const char* transposed_reason_for_aten(const Convolution& c, const Conv1dParams& whole, bool on_gpu) {
  const bool depthwise = is_depthwise(c);
  if (const char* reason = transposed_by_aten(whole, c.groups, depthwise)) return reason;
  if (!depthwise) return nullptr;
  if (!channel_stride(c).has_value()) return kApart;
  return on_gpu && c.schedule.automatic ? bound_by_launches(whole) : nullptr;
}

Components::Components(const Convolution& c, const Conv1dParams& whole)
    : whole_(whole), in_ranges_(!is_depthwise(c) && c.stride > 1), packed_(packed_in_form(c, whole, in_ranges_)) {
  if (in_ranges_) ranges_ = component_ranges(whole);
  count_ = in_ranges_ ? ranges_.count : component_count(whole);
}

Conv1dParams Components::params_of(int64_t launch) const {
  Conv1dParams params = in_ranges_ ? interleaved_params(whole_, ranges_.of[launch])
                                   : component_params(whole_, polyphase_component(whole_, launch));
  params.dense.packed = packed_of(launch);
  return params;
}

// The packed weight of a launch: a range's follows that of the range before.
const void* Components::packed_of(int64_t launch) const {
  if (packed_ == nullptr || !in_ranges_) return packed_;
  const ComponentRange& range = ranges_.of[launch];
  if (range.taps == 0) return nullptr;
  if (range.first_component == 0) return packed_;
  const DenseTensors& own = whole_.dense;
  const PackedOrder before = packed_ranges(whole_, own.input_channels, whole_.input.dtype, own.allows_tf32)[0];
  return static_cast<const char*>(packed_) + before.bytes();
}

std::string Components::describe() const {
  if (count_ == 1) return {};
  if (!in_ranges_) return std::to_string(count_) + " polyphase components, one launch each";
  std::string text = std::to_string(count_) + " launches, of polyphase components with ";
  for (int i = 0; i < ranges_.count; ++i) {
    text += (i == 0 ? "" : i + 1 < ranges_.count ? ", " : " and ") + std::to_string(ranges_.of[i].taps);
  }
  return text + " taps";
}

}  // namespace sluice
