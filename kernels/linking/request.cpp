#include "kernels/linking/request.h"

namespace sluice {
namespace {

void append_key(LinkKey& key, const ChainCall& call) {
  const int count = call.program == nullptr ? 0 : call.program->count;
  key.append(static_cast<char>(count));
  for (int s = 0; s < count; ++s) {
    const Stage& stage = call.program->stages[s];
    key.append(static_cast<char>(code_of(stage)));
    if (stage.op == Op::cast) key.append(static_cast<char>(stage.dtype));
    if (stage.op == Op::cpp) key.append({reinterpret_cast<const char*>(&stage.source), sizeof(stage.source)});
    for (signed char operand : stage.operand) {
      key.append(static_cast<char>(operand));
      if (operand >= 0) key.append(static_cast<char>(call.operand_dtypes[operand]));
    }
  }
}

bool has_cpp_stage(const ChainCall& call) { return call.program != nullptr && call.program->has_cpp(); }

}  // namespace

bool LinkRequest::has_cpp() const { return has_cpp_stage(pre) || has_cpp_stage(post); }

LinkKey LinkRequest::key() const {
  LinkKey key;
  key.append(kernel);
  for (DType dtype : dtypes) key.append(static_cast<char>(dtype));
  append_key(key, pre);
  append_key(key, post);
  return key;
}

}  // namespace sluice
