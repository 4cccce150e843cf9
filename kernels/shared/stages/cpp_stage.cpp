#include "kernels/shared/stages/cpp_stage.h"

namespace sluice {
namespace {

// Only the text, which comes last, may hold a zero byte.
std::string identity_of(const CppStage& stage) {
  std::string identity = stage.name;
  for (const std::string& parameter : stage.parameters) identity += '\0' + parameter;
  return identity + '\0' + '\0' + stage.text;
}

CppStages& stages() {
  static CppStages* const all = new CppStages(kMaxCppStages, kMaxCppBytes);  // threads may outlive static objects
  return *all;
}

}  // namespace

int CppStages::intern(const CppStage& stage) {
  std::string identity = identity_of(stage);
  const std::lock_guard lock(mutex_);
  if (const auto known = numbers_.find(identity); known != numbers_.end()) return known->second;
  if (stages_.size() >= limit_ || identity.size() > limit_bytes_ - bytes_) return -1;
  const int number = static_cast<int>(stages_.size());
  stages_.push_back(stage);
  bytes_ += identity.size();
  numbers_.emplace(std::move(identity), number);
  return number;
}

const CppStage& CppStages::operator[](int number) const {
  const std::lock_guard lock(mutex_);
  return stages_[static_cast<std::size_t>(number)];
}

int intern_cpp_stage(const CppStage& stage) { return stages().intern(stage); }
const CppStage& cpp_stage(int number) { return stages()[number]; }

}  // namespace sluice
