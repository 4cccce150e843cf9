// Names of linked entries (kernels) and of their modules. Both consist of fields, each from a list; a table makes all
// combinations once, so that a call looks names up by numbers and never builds one.
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

using NameFields = std::vector<std::string_view>;

class NameTable {
 public:
  NameTable(std::string_view prefix, const std::vector<NameFields>& lists);

  // The name with these fields, by their numbers in the lists. Valid as long as the table.
  template <class... Field>
  std::string_view operator()(Field... field) const {
    return at({static_cast<int>(field)...});
  }

 private:
  std::string_view at(std::initializer_list<int> fields) const;

  std::vector<int> counts_;
  std::vector<std::string> names_;
};

NameFields dtype_names();     // in the order of DType
NameFields schedule_names();  // in the order of Schedule

}  // namespace sluice
