#include "kernels/linking/entry_names.h"

#include <utility>

namespace sluice {

NameTable::NameTable(std::string_view prefix, const std::vector<NameFields>& lists) : names_{std::string(prefix)} {
  for (const NameFields& list : lists) {
    counts_.push_back(static_cast<int>(list.size()));
    std::vector<std::string> longer;
    for (const std::string& name : names_) {
      for (std::string_view field : list) longer.push_back(name + "_" + std::string(field));
    }
    names_ = std::move(longer);
  }
}

std::string_view NameTable::at(std::initializer_list<int> fields) const {
  int index = 0;
  const int* count = counts_.data();
  for (int field : fields) index = index * *count++ + field;
  return names_[static_cast<std::size_t>(index)];
}

NameFields dtype_names() {
  NameFields names;
  for (DType dtype : kDTypes) names.push_back(name_of(dtype));
  return names;
}

NameFields schedule_names() {
  NameFields names;
  for (const ScheduleTraits& traits : kScheduleTraits) names.push_back(traits.name);
  return names;
}

}  // namespace sluice
