#include "kernels/linking/source.h"

#include <algorithm>
#include <vector>

#include "kernels/shared/stages/cpp_stage.h"
#include "kernels/shared/stages/signatures.h"

namespace sluice {
namespace {

std::string dtype_name(DType dtype) { return std::string("sluice::DType::") + name_of(dtype); }

std::string parameter(const ChainCall& call, int s, int p) {
  // Parameters beyond the third are in the `more` stages that follow.
  const Stage& stage = call.program->stages[s + p / kMaxParameters];
  const int operand = stage.operand[p % kMaxParameters];
  if (operand >= 0) return "t" + std::to_string(operand) + "::get(lanes, i)";
  return "s[" + std::to_string(s + p / kMaxParameters) + "].number[" + std::to_string(p % kMaxParameters) + "]";
}

bool has_return(const std::string& text) { return text.find("return") != std::string::npos; }

// The request's own stages in order of appearance: a source names them by this order, so that it does not depend on the
// process's other stages.
std::vector<int> cpp_stages_of(const LinkRequest& request) {
  std::vector<int> sources;
  for (const ChainCall* call : {&request.pre, &request.post}) {
    for (int s = 0; call->program != nullptr && s < call->program->count; ++s) {
      const Stage& stage = call->program->stages[s];
      if (stage.op == Op::cpp && std::find(sources.begin(), sources.end(), stage.source) == sources.end())
        sources.push_back(stage.source);
    }
  }
  return sources;
}

std::string space_of(const std::vector<int>& sources, int source) {
  return "sluice_stage_" + std::to_string(std::find(sources.begin(), sources.end(), source) - sources.begin());
}

// A user's stage as a function. #line makes NVRTC count the user's lines.
std::string cpp_function(const std::string& type, const std::string& space, const CppStage& stage) {
  std::string text = "namespace " + space + " {\n__device__ __forceinline__ " + type + " apply(" + type + " x";
  for (const std::string& name : stage.parameters) text += ", " + type + " " + name;
  const bool statements = has_return(stage.text);
  text += statements ? ") {" : ") { return (";
  text += "\n#line 1 \"" + stage.name + "\"\n" + stage.text + "\n";
  text += statements ? "}" : ");}";
  return text + "\n}\n#line 1 \"chain\"\n";
}

// A stage's statement on all `count` values.
std::string stage_statement(const ChainCall& call, int s, bool wide, const std::vector<int>& sources, int count) {
  const Stage& stage = call.program->stages[s];
  const std::string each = "SLUICE_EACH(" + std::to_string(count) + ") v[i] = ";
  switch (stage.op) {
    case Op::more: return "";
    case Op::cast: return each + "sluice::rounded<" + dtype_name(stage.dtype) + ">(v[i]);";
    case Op::cpp: {
      std::string expression = space_of(sources, stage.source) + "::apply(v[i]";
      const int parameters = static_cast<int>(cpp_stage(stage.source).parameters.size());
      for (int p = 0; p < parameters; ++p) expression += ", " + parameter(call, s, p);
      return each + expression + ");";
    }
    default:
      return "sluice::evaluate_all<" + std::to_string(count) +
             ">(sluice::Evaluate<sluice::Op::" + signature_of(stage.op).name +
             (code_of(stage) != stage.op ? ", sluice::Precision::half" : "") +
             ">{}, v, [&](int i) { return sluice::Parameters<" + (wide ? "double" : "float") + ">{{" +
             parameter(call, s, 0) + ", " + parameter(call, s, 1) + ", " + parameter(call, s, 2) + "}}; });";
  }
}

// A stage function in float32 (docs/measurements/functions.md counts its instructions), snake, whose large angles
// branch, and users' code.
bool is_long(const Stage& stage) {
  const bool single = stage.precision == Precision::single && in_half(stage.op) != stage.op;
  return stage.op == Op::snake || stage.op == Op::cpp || single;
}

bool is_written(const Program& program, int operand) {
  for (int s = 0; s < program.count; ++s) {
    if (program.stages[s].op == Op::emit && program.stages[s].operand[0] == operand) return true;
  }
  return false;
}

std::string chain_call_source(const char* name, const ChainCall& call, bool wide, const std::vector<int>& sources) {
  const std::string type = wide ? "double" : "float", prefix = std::string("sluice_") + name;
  const int count = call.program == nullptr ? 0 : call.program->count;
  const int operands = count == 0 ? 0 : call.program->operands;
  std::string text;
  for (int k = 0; k < operands; ++k) {
    text += "using " + prefix + "_t" + std::to_string(k) + " = sluice::ChainOperand<" +
            dtype_name(call.operand_dtypes[k]) + ", " + type + ", " + std::to_string(call.width) + ", " +
            std::to_string(call.slices) + ", " + std::to_string(k) + ">;\n";
  }
  text += "extern \"C\" __device__ int " + prefix + "_stages() { return " + std::to_string(count) + "; }\n";
  text += "extern \"C\" __device__ int " + prefix + "_operands() { return " + std::to_string(operands) + "; }\n";
  const bool has_long = count > 0 && std::any_of(call.program->stages, call.program->stages + count, is_long);
  text += "extern \"C\" __device__ int " + prefix + "_is_long() { return " + (has_long ? "1" : "0") + "; }\n";
  text += "extern \"C\" __device__ void " + prefix +
          "_load(unsigned* lanes, const void* const* data, const sluice::Place* places) {\n";
  for (int k = 0; k < operands; ++k) {
    if (is_written(*call.program, k)) continue;
    text += "  " + prefix + "_t" + std::to_string(k) + "::load(lanes, data[" + std::to_string(k) + "], places);\n";
  }
  text += "}\nextern \"C\" __device__ void " + prefix +
          "_apply(void* values, const void* headers, const unsigned* lanes,\n    const void* const* data, const "
          "sluice::Place* "
          "places) {\n";
  if (count > 0) {
    text += "  " + type + "* const v = static_cast<" + type + "*>(values);\n";
    text += "  const auto* const s = static_cast<const sluice::LinkedHeader<" + type + ">*>(headers);\n";
  }
  for (int k = 0; k < operands; ++k)
    text += "  using t" + std::to_string(k) + " = " + prefix + "_t" + std::to_string(k) + ";\n";
  const int values = call.width * call.slices;
  const std::string each = "  SLUICE_EACH(" + std::to_string(values) + ") ";
  const bool emits = count > 0 && call.program->emits();
  if (emits) text += "  " + type + " kept[" + std::to_string(values) + "];\n" + each + "kept[i] = v[i];\n";
  for (int s = 0; s < count; ++s) {
    if (call.program->stages[s].op == Op::emit) {
      const std::string k = std::to_string(call.program->stages[s].operand[0]);
      text += "  t" + k + "::store(data[" + k + "], places, v);\n" + each + "v[i] = kept[i];\n";
      continue;
    }
    const std::string statement = stage_statement(call, s, wide, sources, values);
    if (!statement.empty()) text += "  " + statement + "\n";
  }
  return text + "}\n";
}

}  // namespace

std::string chain_source(const LinkRequest& request) {
  const std::vector<int> sources = cpp_stages_of(request);
  std::string text = "#include \"kernels/linking/chain_runtime.cuh\"\n";
  for (int source : sources) {
    text += cpp_function(request.wide ? "double" : "float", space_of(sources, source), cpp_stage(source));
  }
  text += "extern \"C\" __device__ int sluice_dtype(int which) {\n  constexpr int dtypes[] = {";
  for (DType dtype : request.dtypes) text += std::to_string(static_cast<int>(dtype)) + ", ";
  text += "};\n  return dtypes[which];\n}\n";
  return text + chain_call_source("pre", request.pre, request.wide, sources) +
         chain_call_source("post", request.post, request.wide, sources);
}

std::string explain_log(const LinkRequest& request, const std::string& log) {
  std::string text;
  for (int source : cpp_stages_of(request)) {
    const CppStage& stage = cpp_stage(source);
    if (log.find(stage.name + "(") != std::string::npos) text += "stage '" + stage.name + "': " + stage.text + "\n";
  }
  return text + log;
}

}  // namespace sluice
