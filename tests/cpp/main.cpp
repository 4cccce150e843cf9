#include <cstring>

#include "tests/cpp/check.h"

// What the linker would compile, for tests/test_linked_code.py: <chain> <dtype> <width> <groups>.
int print_source(char** arguments);

namespace sluice::test {

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

int& failures() {
  static int count = 0;
  return count;
}

}  // namespace sluice::test

int main(int count, char** arguments) {
  using namespace sluice::test;
  if (count == 6 && std::strcmp(arguments[1], "source") == 0) return print_source(arguments + 2);
  // Those whose names contain one of the arguments; without any, all.
  int chosen = 0;
  for (const Case& test : cases()) {
    bool wanted = count == 1;
    for (int i = 1; i < count; ++i) wanted = wanted || std::strstr(test.name, arguments[i]) != nullptr;
    if (!wanted) continue;
    test.run();
    ++chosen;
  }
  std::cout << chosen << " cases, " << failures() << " failed checks\n";
  return failures() == 0 && chosen > 0 ? 0 : 1;
}
