#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/cpp/check.h"

// The linker's source, for tests/linking/test_linked_code.py: <chain> <dtype> <width> <slices>.
int print_source(char** arguments);

// The linked kernels that plans can name (linked_entries.cpp).
int print_entries();
int print_dense_sources(const char* post);

namespace sluice::test {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

int& failures() {
  static int count = 0;
  return count;
}

unsigned seed() {
  static const char* const given = std::getenv("SLUICE_TEST_SEED");
  static const unsigned drawn =
      given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  return drawn;
}

}  // namespace sluice::test

int main(int count, char** arguments) {
  using namespace sluice::test;
  if (count == 6 && std::strcmp(arguments[1], "source") == 0) return print_source(arguments + 2);
  if (count == 2 && std::strcmp(arguments[1], "entries") == 0) return print_entries();
  if (count == 3 && std::strcmp(arguments[1], "dense_sources") == 0) return print_dense_sources(arguments[2]);
  std::cout << "random seed " << seed() << ": SLUICE_TEST_SEED=" << seed() << " draws the same\n";
  // Tests whose names contain one of the arguments, and no argument after a minus; without arguments, all tests.
  int chosen = 0;
  for (const Case& test : cases()) {
    bool named = false, named_any = false, left_out = false;
    for (int i = 1; i < count; ++i) {
      const bool minus = arguments[i][0] == '-';
      const bool contained = std::strstr(test.name, arguments[i] + (minus ? 1 : 0)) != nullptr;
      (minus ? left_out : named) |= contained;
      named_any |= !minus;
    }
    if (left_out || (named_any && !named)) continue;
    test.run();
    ++chosen;
  }
  std::cout << chosen << " cases, " << failures() << " failed checks\n";
  return failures() == 0 && chosen > 0 ? 0 : 1;
}
