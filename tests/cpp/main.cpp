#include "tests/cpp/check.h"

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

int main() {
  using namespace sluice::test;
  for (const Case& test : cases()) test.run();
  std::cout << cases().size() << " cases, " << failures() << " failed checks\n";
  return failures() == 0 && !cases().empty() ? 0 : 1;
}
