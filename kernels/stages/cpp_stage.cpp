#include "kernels/stages/cpp_stage.h"

#include <deque>
#include <mutex>

namespace sluice {
namespace {

std::mutex mutex;
// A deque: references to its elements stay valid as it grows.
std::deque<CppStage>& stages() {
  static std::deque<CppStage> known;
  return known;
}

}  // namespace

int intern_cpp_stage(const CppStage& stage) {
  const std::lock_guard lock(mutex);
  for (std::size_t i = 0; i < stages().size(); ++i) {
    if (stages()[i] == stage) return static_cast<int>(i);
  }
  stages().push_back(stage);
  return static_cast<int>(stages().size() - 1);
}

const CppStage& cpp_stage(int number) {
  const std::lock_guard lock(mutex);
  return stages()[static_cast<std::size_t>(number)];
}

}  // namespace sluice
