// A test is a function registered by TEST; CHECK reports and counts failures.
#pragma once

#include <functional>
#include <iostream>
#include <string>
#include <vector>

namespace sluice::test {

struct Case {
  const char* name;
  std::function<void()> run;
};

std::vector<Case>& cases();
int& failures();
// The seed of this run's random numbers: SLUICE_TEST_SEED, or a new number every time.
unsigned seed();

// How often a random case is drawn: a quarter of `wanted` times under a sanitizer, which makes code many times slower.
constexpr unsigned rounds(unsigned wanted) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return wanted / 4;
#else
  return wanted;
#endif
}

struct Registration {
  Registration(const char* name, std::function<void()> run) { cases().push_back({name, std::move(run)}); }
};

}  // namespace sluice::test

#define TEST(name)                                                      \
  static void name();                                                   \
  static const sluice::test::Registration register_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                              \
  do {                                                                                \
    if (!(condition)) {                                                               \
      std::cerr << __FILE__ << ":" << __LINE__ << ": " #condition " does not hold\n"; \
      ++sluice::test::failures();                                                     \
    }                                                                                 \
  } while (false)
