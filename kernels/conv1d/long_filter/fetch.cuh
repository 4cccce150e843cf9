// A segment's input on its way to shared memory, and its taps on theirs.
#pragma once

#include "kernels/conv1d/long_filter/arguments.cuh"
#include "kernels/pipeline/copy_groups.cuh"

namespace sluice {

// A stage within its row is copied. Else its words by what they need: those that lie in the row are copied, those
// outside of it and its history are zeros, and the elements of the others, which an end of the row cuts through or
// which are history, come one by one.
template <class Element>
__device__ __forceinline__ void fetch_segment(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                              std::uint32_t stage, int lane) {
  constexpr int kWidth = kWordElements<Element>;
  const Element* const row = segment.row_of(a);
  const int words = segment.words(a), length = static_cast<int>(a.length), start = segment.start;
  if (start >= 0 && start + words * kWidth <= length) {
    const Element* from = row + start + lane * kWidth;
    for (int w = lane; w < words; w += 32, from += 32 * kWidth) copy_word(stage + w * kWordBytes, from);
    return;
  }
  const int known_from = a.history.exists() ? -static_cast<int>(a.padding) : 0;
#pragma unroll 1
  for (int w = lane; w < words; w += 32) {
    const int position = start + w * kWidth;
    const std::uint32_t to = stage + w * kWordBytes;
    if (position >= 0 && position <= length - kWidth) {
      copy_word(to, row + position);
    } else if (position + kWidth <= known_from || position >= length) {
      store_shared_word(to, Word{});
    }
  }
  // The words before position 0 that know something, and that which the row ends in. Places, as positions from the
  // stage's start on.
  const int front = start < 0 ? max_of(known_from - start, 0) / kWidth * kWidth : 0;
  const int front_end = start < 0 ? round_up(-start, kWidth) : 0;
  const int back = max_of(length - start, 0) / kWidth * kWidth;
  const bool is_cut = back >= front_end && back < length - start;
  const int in_front = front_end - front, places = in_front + (is_cut ? kWidth : 0);
  auto* const elements = static_cast<Element*>(__cvta_shared_to_generic(stage));
#pragma unroll 1
  for (int i = lane; i < places; i += 32) {
    const int place = i < in_front ? front + i : back + i - in_front;
    if (place >= words * kWidth) continue;
    elements[place] = element_at(a, segment.batch, segment.input_channel, start + place);
  }
}

// `pre` on the words that have something of the input's.
template <class Pre, class Element>
__device__ __forceinline__ void prepare_segment(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                                std::uint32_t stage, int lane) {
  constexpr int kWidth = kWordElements<Element>;
  const int words = segment.words(a), length = static_cast<int>(a.length);
#pragma unroll 1
  for (int w = lane; w < words; w += 32) {
    const int position = segment.start + w * kWidth;
    if (position + kWidth <= 0 || position >= length) continue;
    const std::uint32_t at = stage + w * kWordBytes;
    const Word word = load_shared_word(at);
    store_shared_word(at, apply_pre<Pre>(a, word, segment.batch, segment.input_channel, position, 0, 1));
  }
}

// The taps of the segment's channel as the lane's shares of T, a step after another: 8 bytes that no other lane reads.
template <class Element>
__device__ __forceinline__ void fetch_taps(const LongFilterArguments<Element>& a, const Segment<Element>& segment,
                                           std::uint32_t taps, int lane) {
  const Element* const row = a.weight.template as<const Element>() + segment.channel * a.weight.strides[0];
  const int dilation = static_cast<int>(a.dilation);
#pragma unroll 2
  for (int step = 0; step < a.steps; ++step) {
    Element elements[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int distance = tap_distance(lane, step, i, segment.shift);
      const int k = static_cast<int>(a.by_dilation.quotient_of_31_bits(static_cast<unsigned>(max_of(distance, 0))));
      const bool is_tap = distance >= 0 && k * dilation == distance && k < a.taps;
      elements[i] = is_tap ? row[k * a.weight.strides[1]] : convert<Element>(0.0f);
    }
    std::uint32_t lanes[2];
    __builtin_memcpy(lanes, elements, sizeof(lanes));
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                 :
                 : "r"(taps + step * kStepBytes), "r"(lanes[0]), "r"(lanes[1])
                 : "memory");
  }
}

}  // namespace sluice
