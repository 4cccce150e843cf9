#include "kernels/operators/causal_conv1d/cpu/window.h"

#include <algorithm>

#include "ops/common/launch.h"
#include "ops/cpu/share_out.h"

namespace sluice {
namespace {

constexpr long long kChannels = 64;  // channels of an item

// Calls `body.operator()<set>(row, first_channel, last_channel)` for all channels of all rows.
template <class Body>
void for_channels(long long rows, long long channels, long long columns, const Body& body) {
  const long long blocks = ceil_div(channels, kChannels);
  const int64_t grain = std::max(1LL, (16LL << 10) / std::max(1LL, columns * std::min(channels, kChannels)));
  share_out(rows * blocks, grain, [&]<InstructionSet set>(int64_t first, int64_t last) {
    for (int64_t item = first; item < last; ++item) {
      const long long channel = item % blocks * kChannels;
      body.template operator()<set>(item / blocks, channel, std::min(channels, channel + kChannels));
    }
  });
}

}  // namespace

void launch(const DeviceScope&, const WindowParams& p) {
  for_channels(p.states.count, p.channels, p.history + p.length,
               [&]<InstructionSet set>(long long row, long long first, long long last) {
                 window_cpu<set>(p, row, first, last);
               });
}

void launch(const DeviceScope&, const ZeroRowsParams& p) {
  for_channels(p.states.count, p.channels, p.columns,
               [&]<InstructionSet set>(long long row, long long first, long long last) {
                 zero_row_cpu<set>(p, row, first, last);
               });
}

void launch(const DeviceScope&, const OverlapParams& p) {
  for_channels(p.states.count, p.channels, p.overlap,
               [&]<InstructionSet set>(long long row, long long first, long long last) {
                 overlap_cpu<set>(p, row, first, last);
               });
}

}  // namespace sluice
