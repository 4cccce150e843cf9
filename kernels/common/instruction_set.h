// CPU kernels are compiled once for each of these (CMakeLists.txt, SLUICE_INSTRUCTION_SET), and one is picked for a
// whole range of work:
//
//   <op>.h          template <InstructionSet set>
//                   void transform_cpu(const TransformParams& params, long long first, long long last);
//   <op>_cpu.cpp    template <>
//                   void transform_cpu<kInstructionSet>(const TransformParams& params, ...) { ... }
//   the caller      with_instruction_set([&]<InstructionSet set>() { transform_cpu<set>(params, first, last); });
//
// The linker keeps one copy of an inline function, whichever instruction set it was compiled for. Such a source
// therefore defines nothing but its specialisations for others to see: the rest of it, and of the headers that are made
// for such sources alone (*_cpu.h), stands in unnamed namespaces, and SLUICE_HOST_DEVICE is always inlined there.
// tests/test_binary.py looks at the symbols.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

enum class InstructionSet { baseline, avx2, avx512 };

#ifdef SLUICE_INSTRUCTION_SET
// That of this source.
inline constexpr InstructionSet kInstructionSet = InstructionSet::SLUICE_INSTRUCTION_SET;
#endif

// What the kernels run with: the best that the machine has, or what the environment variable SLUICE_CPU names.
InstructionSet instruction_set();

// False where the machine has no such one, or there is none of that name.
bool use_instruction_set(std::string_view name);

const char* name_of(InstructionSet set);

// The names of those that the machine has, best first, with spaces between.
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
