// CPU kernels are compiled once per instruction set (SLUICE_INSTRUCTION_SET, set in CMakeLists.txt), and one is chosen
// for a whole range of work:
//
//   transform/transform.h          template <InstructionSet set>
//                                  void transform_cpu(const TransformParams& params, long long first, long long last);
//   cpu/transform/transform.cpp    template <>
//                                  void transform_cpu<kInstructionSet>(const TransformParams& params, ...) { ... }
//   the caller                     with_instruction_set([&]<InstructionSet set>() {
//                                    transform_cpu<set>(params, first, last);
//                                  });
//
// The linker keeps one copy of an inline function, whichever instruction set it was compiled for. So such a source
// exports nothing but its specialisations: everything else in it, and in the headers made only for such sources, is in
// unnamed namespaces, and SLUICE_HOST_DEVICE is always inlined there. tests/tools/test_binary.py checks the symbols.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

enum class InstructionSet { baseline, avx2, avx512 };

#ifdef SLUICE_INSTRUCTION_SET
// The instruction set of this source.
inline constexpr InstructionSet kInstructionSet = InstructionSet::SLUICE_INSTRUCTION_SET;
#endif

// The kernels' instruction set: the best of the machine, or the environment variable SLUICE_CPU's.
InstructionSet instruction_set();

// False if the name is unknown, or the machine does not have it.
bool use_instruction_set(std::string_view name);

const char* name_of(InstructionSet set);

// The names of the sets that the machine has, best first, separated by spaces.
std::string usable_instruction_sets();

template <class Body>
void with_instruction_set(Body&& body) {
  switch (instruction_set()) {
#if defined(__x86_64__)
    case InstructionSet::avx512: return body.template operator()<InstructionSet::avx512>();
    case InstructionSet::avx2: return body.template operator()<InstructionSet::avx2>();
#endif
    default: return body.template operator()<InstructionSet::baseline>();
  }
}

}  // namespace sluice
