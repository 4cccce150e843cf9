#include <array>
#include <cmath>

#include "kernels/shared/stages/cpu/evaluate.h"
#include "kernels/shared/stages/parse.h"
#include "kernels/shared/stages/signatures.h"
#include "tests/cpp/check.h"

using namespace sluice;

TEST(text_becomes_a_program) {
  Program program;
  CHECK(parse_chain("scale(1.5) | add($1, 2)|silu", 2, program).empty());
  CHECK(program.count == 3);
  CHECK(program.operands == 2);
  CHECK(program.stages[0].op == Op::mul && program.stages[0].number[0] == 1.5 && program.stages[0].operand[0] == -1);
  CHECK(program.stages[1].op == Op::add && program.stages[1].operand[0] == 1 && program.stages[1].number[1] == 2.0);
  CHECK(program.stages[2].op == Op::silu);
}

TEST(a_copy_of_a_program_has_its_stages_and_no_more) {
  Program longer, shorter;
  CHECK(parse_chain("relu|silu|tanh|add($0)", 1, longer).empty() && parse_chain("scale(2)|exp", 0, shorter).empty());
  Program copy = longer;
  CHECK(copy.count == 4 && copy.operands == 1 && copy.stages[3].op == Op::add && copy.stages[3].operand[0] == 0);
  copy = shorter;
  CHECK(copy.count == 2 && copy.operands == 0 && copy.stages[0].number[0] == 2.0 && copy.stages[1].op == Op::exp);
  CHECK(copy.stages[2].op == longer.stages[2].op);  // unchanged, and never read
  copy = Program{};
  CHECK(copy.empty() && copy.operands == 0);
}

TEST(an_addition_before_a_chain_has_an_operand_of_its_own) {
  Program program;
  CHECK(parse_chain("mul($1)|silu", 2, program).empty() && program.prepend_addition());
  CHECK(program.count == 3 && program.operands == 3);
  CHECK(program.stages[0].op == Op::add && program.stages[0].operand[0] == 2 && program.stages[0].number[1] == 1.0);
  CHECK(program.stages[0].operand[1] == -1 && program.stages[0].operand[2] == -1);
  CHECK(program.stages[1].op == Op::mul && program.stages[1].operand[0] == 1 && program.stages[2].op == Op::silu);
  program.operands = kMaxOperands;
  CHECK(!program.prepend_addition() && program.count == 3);
  program.operands = 0;
  program.count = kMaxStages;
  CHECK(!program.prepend_addition() && program.count == kMaxStages);
}

TEST(an_empty_text_is_an_empty_program) {
  Program program;
  CHECK(parse_chain("", 0, program).empty() && program.empty());
  CHECK(parse_chain("  ", 0, program).empty() && program.empty());
}

TEST(defaults_are_torchs) {
  Program program;
  CHECK(parse_chain("leaky_relu|softplus()|clamp(0)|shift(3)", 0, program).empty());
  CHECK(program.stages[0].number[0] == 0.01);
  CHECK(program.stages[1].number[0] == 1.0 && program.stages[1].number[1] == 20.0);
  CHECK(program.stages[2].number[0] == 0.0 && std::isinf(program.stages[2].number[1]));
  CHECK(program.stages[3].op == Op::add && program.stages[3].number[0] == 3.0 && program.stages[3].number[1] == 1.0);
}

TEST(each_row_of_the_table_is_a_stage_that_runs) {
  Program program;
  for (const StageSignature& signature : kSignatures) {
    const StageSignature& own = signature_of(signature.op);
    CHECK(own.op == signature.op && own.parameters() >= signature.parameters());
    CHECK(with_stage<float>(signature.op, [](auto) {}));
    CHECK(with_parametric<float>(signature.op, [](auto) {}) == (own.parameters() > 0));
    CHECK(with_arithmetic(signature.op, [](auto) {}) == is_arithmetic(signature.op));
    std::string text = std::string(signature.name) + "(";
    for (int p = 0; p < signature.parameters(); ++p) text += p > 0 ? ",$0" : "$0";
    CHECK(parse_chain(text + ")", 1, program).empty());
    CHECK(program.stages[0].op == signature.op);
  }
  CHECK(!with_stage<float>(Op::cast, [](auto) {}) && !with_stage<float>(Op::emit, [](auto) {}));
}

TEST(numbers_survive_at_the_ends_of_doubles_range) {
  Program program;
  CHECK(parse_chain("scale(5e-324)|scale(inf)|scale(-inf)|scale(1e-400)", 0, program).empty());
  CHECK(program.stages[0].number[0] == 5e-324);
  CHECK(program.stages[1].number[0] == HUGE_VAL && program.stages[2].number[0] == -HUGE_VAL);
  CHECK(program.stages[3].number[0] == 0.0);
}

TEST(what_is_no_chain_is_refused) {
  Program program;
  for (const char* text : {"frob", "scale", "scale(", "scale(1", "scale 1)", "scale(1,2)", "silu|", "add($0)",
                           "add($x)", "cast", "cast(int8)", "|silu"}) {
    CHECK(!parse_chain(text, 0, program).empty());
  }
  std::string longest = "relu";
  for (int i = 1; i < kMaxStages; ++i) longest += "|relu";
  CHECK(parse_chain(longest, 0, program).empty());
  CHECK(!parse_chain(longest + "|relu", 0, program).empty());
}

TEST(a_chain_runs_on_a_block) {
  Program program;
  CHECK(parse_chain("scale(2)|add($0)|relu", 1, program).empty());
  float other[3] = {-10.0f, 1.0f, 2.0f};
  const Operand<1> operands[1] = {{other, DType::float32, {1}}};
  const auto chain = make_chain_arguments<float, 1>(program, operands, 1, std::array{3LL}.data());
  float values[3] = {1.0f, 2.0f, -3.0f};
  evaluate_block(chain, values, 3, [](int) { return 0; });
  CHECK(values[0] == 0.0f && values[1] == 5.0f && values[2] == 0.0f);
}
