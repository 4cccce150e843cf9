// Text -> Program. The text is a raw op's argument, and shown in exported graphs:
//
//   chain     = [ stage *( "|" stage ) ]
//   stage     = name [ "(" [ parameter *( "," parameter ) ] ")" ]
//   parameter = number | "$" index          a number, or the tensor operand of that index
//
// "scale(1.5)|add($0,2)|silu" is 1.5 x, plus twice operand 0, through SiLU. Missing parameters have torch's defaults;
// `cast` takes a dtype's name: "cast(bfloat16)".
#pragma once

#include <string>
#include <string_view>

#include "kernels/shared/stages/program.h"

namespace sluice {

// Fills `program` and returns an empty string, or returns the rule that `text` breaks.
std::string parse_chain(std::string_view text, int operands, Program& program);

}  // namespace sluice
