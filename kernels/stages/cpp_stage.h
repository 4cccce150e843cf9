// Stages that a user wrote in C++. A program refers to them by number, so that it stays plain data.
#pragma once

#include <string>
#include <vector>

namespace sluice {

struct CppStage {
  std::string name;                     // an identifier, for messages
  std::string text;                     // an expression of x and the parameters, or statements with a return
  std::vector<std::string> parameters;  // identifiers

  bool operator==(const CppStage&) const = default;
};

// The number of a stage; the same for equal stages, for the life of the process.
int intern_cpp_stage(const CppStage& stage);
const CppStage& cpp_stage(int number);

}  // namespace sluice
