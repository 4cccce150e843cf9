#include "kernels/operators/conv1d/dense/prelinked.h"

#include <stdexcept>

#include "kernels/operators/conv1d/link.h"
#include "kernels/shared/stages/parse.h"

namespace sluice {
namespace {

void set_chain(const char* text, DType dtype, Program& program, Operand<3>* operands) {
  if (*text == '\0') return;
  const std::string error = parse_chain(text, /*operands=*/1, program);
  if (!error.empty()) throw std::logic_error(error);
  program.set_precision(dtype, dtype);
  for (int k = 0; k < program.operands; ++k) operands[k].dtype = dtype;
}

}  // namespace

void for_each_prelinked(const std::function<void(const LinkRequest&)>& visit) {
  for (const PrelinkedChains& chains : kDensePrelinked) {
    for (DType dtype : {DType::float16, DType::bfloat16}) {
      Conv1dParams params{};
      params.input.dtype = params.output.dtype = params.weight.dtype = params.bias.dtype = dtype;
      set_chain(chains.pre, dtype, params.pre, params.pre_operands);
      set_chain(chains.post, dtype, params.post, params.post_operands);
      Conv1dPlan plan;
      plan.which = Conv1dMethod::dense;
      for (int shape = 0; shape < static_cast<int>(std::size(kDenseShapes)); ++shape) {
        for (bool by_positions : {false, true}) {
          if (!by_positions && !chains.in_channels) continue;
          plan.dense.shape = shape;
          plan.dense.by_positions = by_positions;
          visit(link_request(params, plan));
        }
      }
    }
  }
}

}  // namespace sluice
