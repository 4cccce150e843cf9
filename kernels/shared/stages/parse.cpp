#include "kernels/shared/stages/parse.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "kernels/shared/stages/cpp_stage.h"
#include "kernels/shared/stages/signatures.h"

namespace sluice {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The first `separator` outside "quotes", in which a backslash escapes the next character.
std::size_t find_outside_quotes(std::string_view text, char separator) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == separator && !inside) return i;
    if (text[i] == '"') inside = !inside;
    if (text[i] == '\\' && inside) ++i;
  }
  return std::string_view::npos;
}

// Removes and returns the text before `separator`; all of `text` if there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = find_outside_quotes(text, separator);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return trim(head);
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string parse_parameter(std::string_view text, int operands, Program& program, Stage& stage, int index) {
  const char* const end = text.data() + text.size();
  if (!text.empty() && text.front() == '$') {
    int operand = -1;
    const auto parsed = std::from_chars(text.data() + 1, end, operand);
    if (parsed.ec != std::errc{} || parsed.ptr != end || operand < 0)
      return "an operand must be written $0, $1, ..., got " + quoted(text);
    if (operand >= operands)
      return "operand " + std::string(text) + " must be one of the " + std::to_string(operands) + " given";
    stage.operand[index] = static_cast<signed char>(operand);
    if (operand >= program.operands) program.operands = operand + 1;
    return {};
  }
  const auto parsed = std::from_chars(text.data(), end, stage.number[index]);
  if (parsed.ec == std::errc::result_out_of_range && parsed.ptr == end) {
    // Beyond double's range, which Python writes as inf, or closer to zero than it can hold.
    stage.number[index] = std::strtod(std::string(text).c_str(), nullptr);
    return {};
  }
  if (parsed.ec != std::errc{} || parsed.ptr != end)
    return "a parameter must be a number or an operand, got " + quoted(text);
  return {};
}

std::string parse_cast(std::string_view parameter, Stage& stage) {
  for (DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    if (parameter == name_of(dtype)) {
      stage.op = Op::cast;
      stage.dtype = dtype;
      return {};
    }
  }
  return "cast must name float32, float16, bfloat16 or float64, got " + quoted(parameter);
}

bool is_identifier(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (text.empty() || !letter(text.front())) return false;
  for (char c : text) {
    if (!letter(c) && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

// The text between the quotes, escapes resolved: \n is a newline, another character itself.
std::string unquoted(std::string_view text) {
  std::string result;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\')
      result += text[++i] == 'n' ? '\n' : text[i];
    else
      result += text[i];
  }
  return result;
}

// cpp("x * tanhf(a * x)",name,a=0.5,b=$0). Parameters beyond a stage's own three go into the `more` stages that follow.
std::string parse_cpp(std::string_view rest, int operands, Program& program) {
  CppStage source;
  const std::string_view text = take_until(rest, ',');
  if (text.size() < 3 || text.front() != '"' || text.back() != '"') return "cpp must begin with its text in quotes";
  source.text = unquoted(text);
  const std::string_view name = take_until(rest, ',');
  if (!is_identifier(name)) return "the name of a cpp stage must be an identifier, got " + quoted(name);
  source.name = name;
  const int first = program.count;
  program.stages[first].op = Op::cpp;
  while (!rest.empty()) {
    std::string_view value = take_until(rest, ',');
    const std::string_view parameter = take_until(value, '=');
    if (!is_identifier(parameter) || parameter == "x")
      return "a parameter of a cpp stage must be an identifier other than x, got " + quoted(parameter);
    const int given = static_cast<int>(source.parameters.size()), number = first + given / kMaxParameters;
    if (number == kMaxStages) return "a chain must have at most " + std::to_string(kMaxStages) + " stages";
    Stage& stage = program.stages[number];
    if (number > program.count) {
      stage = Stage{};
      std::memset(stage.operand, -1, sizeof(stage.operand));
      stage.op = Op::more;
      program.count = number;
    }
    std::string error = parse_parameter(value, operands, program, stage, given % kMaxParameters);
    if (!error.empty()) return error;
    source.parameters.emplace_back(parameter);
  }
  program.stages[first].source = intern_cpp_stage(source);
  if (program.stages[first].source >= 0) return {};
  return "a process must have at most " + std::to_string(kMaxCppStages) + " different cpp stages, with " +
         std::to_string(kMaxCppBytes >> 20) + " MiB of text in all, got one more: pass changing values as parameters";
}

std::string parse_stage(std::string_view text, int operands, Program& program) {
  std::string_view rest = text;
  const std::string_view name = take_until(rest, '(');
  if (rest.empty() != (text.find('(') == std::string_view::npos) || (!rest.empty() && rest.back() != ')'))
    return "a stage must be written name(parameters), got " + quoted(text);
  if (!rest.empty()) rest.remove_suffix(1);
  rest = trim(rest);

  Stage& stage = program.stages[program.count];
  stage = Stage{};
  std::memset(stage.operand, -1, sizeof(stage.operand));
  if (name == "cast") return parse_cast(rest, stage);
  if (name == "cpp") return parse_cpp(rest, operands, program);
  for (const StageSignature& signature : kSignatures) {
    if (name != signature.name) continue;
    stage.op = signature.op;
    const StageSignature& own = signature_of(signature.op);
    for (int p = 0; p < own.parameters(); ++p) stage.number[p] = own.parameter[p].number;
    const int parameters = signature.parameters();
    int given = 0;
    for (; !rest.empty(); ++given) {
      if (given == parameters)
        return std::string(name) + " must have at most " + std::to_string(parameters) + " parameters, got " +
               quoted(text);
      std::string error = parse_parameter(take_until(rest, ','), operands, program, stage, given);
      if (!error.empty()) return error;
    }
    for (int p = given; p < parameters; ++p) {
      if (std::isnan(signature.parameter[p].number))
        return std::string(name) + " must have at least " + std::to_string(p + 1) + " parameter" + (p ? "s" : "") +
               ", got " + quoted(text);
    }
    return {};
  }
  return "unknown stage " + quoted(name) + ": it must be one of those in sluice.stages";
}

}  // namespace

std::string parse_chain(std::string_view text, int operands, Program& program) {
  program = Program{};
  std::string_view rest = trim(text);
  while (!rest.empty()) {
    if (program.count == kMaxStages)
      return "a chain must have at most " + std::to_string(kMaxStages) + " stages, got " + quoted(text);
    const bool more = find_outside_quotes(rest, '|') != std::string_view::npos;
    std::string error = parse_stage(take_until(rest, '|'), operands, program);
    if (!error.empty()) return error;
    ++program.count;
    if (more && rest.empty()) return "a stage must follow '|', got " + quoted(text);
  }
  return {};
}

}  // namespace sluice
