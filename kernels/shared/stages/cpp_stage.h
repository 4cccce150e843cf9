// Users' C++ stages. A program refers to them by number, and so stays plain data.
#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace sluice {

struct CppStage {
  std::string name;                     // an identifier, for messages
  std::string text;                     // an expression of x and the parameters, or statements with a return
  std::vector<std::string> parameters;  // identifiers

  bool operator==(const CppStage&) const = default;
};

// Stages by number, never removed: a number may be in use as long as there is a thread. Hence the bounds.
class CppStages {
 public:
  CppStages(std::size_t limit, std::size_t limit_bytes) : limit_(limit), limit_bytes_(limit_bytes) {}

  // The number of a stage, the same for equal stages; -1 at the bound.
  int intern(const CppStage& stage);
  const CppStage& operator[](int number) const;

 private:
  std::size_t limit_, limit_bytes_, bytes_ = 0;
  mutable std::mutex mutex_;
  std::deque<CppStage> stages_;  // references to a deque's elements stay valid as it grows
  std::unordered_map<std::string, int> numbers_;
};

// The process's stages. Each stage that compiles is at least one linked kernel, so the default bounds are equal
// (kernels/linking/linker.h); the bytes are of all texts together.
inline constexpr std::size_t kMaxCppStages = 4096, kMaxCppBytes = std::size_t{16} << 20;
int intern_cpp_stage(const CppStage& stage);
const CppStage& cpp_stage(int number);

}  // namespace sluice
