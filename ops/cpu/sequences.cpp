#include <algorithm>

#include "kernels/operators/causal_conv1d/cpu/states.h"
#include "kernels/operators/causal_conv1d/cpu/subsequences.h"
#include "kernels/operators/conv1d/cpu/depthwise.h"
#include "ops/common/launch.h"
#include "ops/cpu/share_out.h"

namespace sluice {
namespace {

constexpr long long kStateChannels = 1024;  // channels per thread at least

void write_zeros(const Conv1dParams& p) {
  const std::size_t size = size_of(p.output.dtype);
  for (long long c = 0; c < p.channels; ++c) {
    char* const row = static_cast<char*>(p.output.data) + c * p.output.strides[1] * static_cast<long long>(size);
    for (long long t = 0; t < p.output_length; ++t) {
      std::fill_n(row + t * p.output.strides[2] * static_cast<long long>(size), size, char{0});
    }
  }
}

// Tiles are numbered subsequence after subsequence; a subsequence of zeros alone counts as a tile.
void convolve_subsequences(const SequencesParams& params, const std::vector<Subsequence>& subsequences) {
  std::vector<long long> starts(1, 0);
  long long grain = 1;
  SubsequenceConvolution convolutions(params);
  for (const Subsequence& subsequence : subsequences) {
    const DepthwiseTiles tiles = tiles_on_cpu(convolutions.at(subsequence));
    starts.push_back(starts.back() + (subsequence.slot < 0 ? 1 : tiles.count));
    grain = std::max<long long>(grain, tiles.grain);
  }
  share_out(starts.back(), grain, [&]<InstructionSet set>(int64_t first, int64_t last) {
    SubsequenceConvolution own(params);
    auto at = std::upper_bound(starts.begin(), starts.end(), first) - starts.begin() - 1;
    for (; at < static_cast<long long>(subsequences.size()) && starts[at] < last; ++at) {
      const Conv1dParams& convolution = own.at(subsequences[at]);
      if (subsequences[at].slot < 0) {
        write_zeros(convolution);
        continue;
      }
      depthwise_cpu<set>(convolution, tiles_on_cpu(convolution), std::max<long long>(first - starts[at], 0),
                         std::min<long long>(last, starts[at + 1]) - starts[at]);
    }
  });
}

}  // namespace

void launch(const DeviceScope& device, const SequencesParams& params) {
  convolve_subsequences(params, subsequences_on_cpu(params));
  launch_states(device, params);
}

void launch_states(const DeviceScope&, const SequencesParams& params) {
  if (!params.sequences.after.exists()) return;
  const std::vector<Subsequence> subsequences = last_subsequences_on_cpu(params);
  const long long channels = params.convolution.channels, blocks = ceil_div(channels, kStateChannels);
  const int64_t items = static_cast<int64_t>(subsequences.size()) * blocks;
  share_out(items, /*grain=*/8, [&]<InstructionSet set>(int64_t first, int64_t last) {
    for (int64_t item = first; item < last; ++item) {
      const long long channel = item % blocks * kStateChannels;
      keep_state_cpu<set>(params, subsequences[item / blocks], channel, std::min(channels, channel + kStateChannels));
    }
  });
}

}  // namespace sluice
