#include "ops/convolution/transposed.h"

#include "kernels/operators/conv1d/aten_reason.h"
#include "ops/convolution/params.h"

namespace sluice {
namespace {

constexpr AtenReason kApart("the weight's output channels are not equally far apart");

}  // namespace

const char* transposed_reason_for_aten(const Convolution& c, const Conv1dParams& whole, bool on_gpu) {
  const bool depthwise = is_depthwise(c);
  if (const char* reason = transposed_by_aten(whole, c.groups, depthwise)) return reason;
  if (!depthwise) return nullptr;
  if (!channel_stride(c).has_value()) return kApart;
  return on_gpu && c.schedule.automatic ? bound_by_launches(whole) : nullptr;
}

Components::Components(const Convolution& c, const Conv1dParams& whole)
    : whole_(whole), in_ranges_(!is_depthwise(c) && c.stride > 1) {
  if (in_ranges_) ranges_ = component_ranges(whole);
  count_ = in_ranges_ ? ranges_.count : component_count(whole);
}

Conv1dParams Components::params_of(int64_t launch) const {
  return in_ranges_ ? interleaved_params(whole_, ranges_.of[launch])
                    : component_params(whole_, polyphase_component(whole_, launch));
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
