// Names of linked kernels and of the modules that hold them. Both are made of parts, each from a list of its own; a
// table makes all combinations once, so that a call finds its names by numbers and never builds one.
//
//   static const NameTable entries("sluice_conv1d", {{"rows", "channels"}, dtype_names(), {"direct", "plain"}});
//   entries(1, DType::float16, 1)     "sluice_conv1d_channels_float16_plain"
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/dtype.h"
#include "kernels/pipeline/schedule.h"

namespace sluice {

using NameParts = std::vector<std::string_view>;

class NameTable {
 public:
  NameTable(std::string_view prefix, const std::vector<NameParts>& lists);

  // Of the parts with these numbers, one of each list. Lives as long as the table.
  template <class... Part>
  std::string_view operator()(Part... part) const {
    return at({static_cast<int>(part)...});
  }

 private:
  std::string_view at(std::initializer_list<int> parts) const;

  std::vector<int> counts_;
  std::vector<std::string> names_;
};

NameParts dtype_names();     // numbered as DType is
NameParts schedule_names();  // numbered as Schedule is

}  // namespace sluice
