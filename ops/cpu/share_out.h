// Work of the CPU, shared out among torch's threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <cstdint>

#include "kernels/shared/cpu/instruction_set.h"

namespace sluice {

// Calls `body.operator()<set>(first, last)` for ranges of the items 0 .. count - 1, of at least `grain` items each;
// `set` is the instruction set in use.
template <class Body>
void share_out(int64_t count, int64_t grain, const Body& body) {
  with_instruction_set([&]<InstructionSet set>() {
    torch::stable::parallel_for(0, count, grain,
                                [&](int64_t first, int64_t last) { body.template operator()<set>(first, last); });
  });
}

}  // namespace sluice
