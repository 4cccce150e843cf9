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
  for (const Case& test : cases()) test.run();
  std::cout << cases().size() << " cases, " << failures() << " failed checks\n";
  return failures() == 0 && !cases().empty() ? 0 : 1;
}
