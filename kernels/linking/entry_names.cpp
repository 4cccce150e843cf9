#include "kernels/linking/entry_names.h"

#include <utility>

namespace sluice {

NameTable::NameTable(std::string_view prefix, const std::vector<NameParts>& lists) : names_{std::string(prefix)} {
  for (const NameParts& list : lists) {
    counts_.push_back(static_cast<int>(list.size()));
    std::vector<std::string> longer;
    for (const std::string& name : names_) {
      for (std::string_view part : list) longer.push_back(name + "_" + std::string(part));
    }
    names_ = std::move(longer);
  }
}

std::string_view NameTable::at(std::initializer_list<int> parts) const {
  int index = 0;
  const int* count = counts_.data();
  for (int part : parts) index = index * *count++ + part;
  return names_[static_cast<std::size_t>(index)];
}

NameParts dtype_names() {
  NameParts names;
  for (DType dtype : kDTypes) names.push_back(name_of(dtype));
  return names;
}

NameParts schedule_names() {
  NameParts names;
  for (const ScheduleTraits& traits : kScheduleTraits) names.push_back(traits.name);
  return names;
}

}  // namespace sluice
