#include <dlfcn.h>

#include <algorithm>
#include <thread>

#include "kernels/linking/kernel_table.h"
#include "kernels/linking/link_table.h"
#include "kernels/linking/shared_object.h"
#include "kernels/linking/source.h"
#include "kernels/shared/pipeline/schedule.h"
#include "kernels/shared/stages/cpp_stage.h"
#include "kernels/shared/stages/parse.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {

LinkRequest request_for(const Program& program, DType operand = DType::float32) {
  LinkRequest request{.module = "module", .kernel = "kernel"};
  request.post = ChainCall{&program, {}, 8, 1};
  for (DType& dtype : request.post.operand_dtypes) dtype = operand;
  return request;
}

Program parsed(const char* text) {
  Program program;
  CHECK(parse_chain(text, 8, program).empty());
  return program;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

int print_source(char** arguments) {
  DType dtype = DType::float32;
  for (DType known : kDTypes) {
    if (std::string_view(arguments[1]) == name_of(known)) dtype = known;
  }
  Program program;
  const std::string error = parse_chain(arguments[0], kMaxOperands, program);
  program.set_precision(dtype, dtype);
  LinkRequest request = request_for(program, dtype);
  request.wide = dtype == DType::float64;
  request.post.width = std::stoi(arguments[2]);
  request.post.slices = std::stoi(arguments[3]);
  for (DType& tensor : request.dtypes) tensor = dtype;
  std::cout << (error.empty() ? chain_source(request) : error);
  return error.empty() ? 0 : 1;
}

TEST(a_key_has_room_for_any_request) {
  Program program;
  program.count = kMaxStages;
  for (Stage& stage : program.stages) {
    stage.op = Op::cpp;
    stage.source = kMaxCppStages - 1;
    for (signed char& operand : stage.operand) operand = kMaxOperands - 1;
  }
  const std::string name(120, 'k');  // the longest of today has 43
  LinkRequest request = request_for(program);
  request.kernel = name;
  request.pre = request.post;
  const std::size_t stages = 2 * (1 + kMaxStages * (1 + sizeof(int) + 2 * kMaxParameters));
  CHECK(request.key().view().size() == name.size() + kLinkedTensors + stages);
}

TEST(numbers_leave_no_trace_in_the_source) {
  const Program a = parsed("scale(1.5)|add($0,2)"), b = parsed("scale(-7)|add($0,0.25)"),
                c = parsed("scale($0)|add($0,2)");
  CHECK(chain_source(request_for(a)) == chain_source(request_for(b)));
  CHECK(request_for(a).key() == request_for(b).key());
  CHECK(request_for(a).key() != request_for(c).key());
  CHECK(chain_source(request_for(a)) != chain_source(request_for(c)));
  CHECK(request_for(a).key() != request_for(a, DType::float16).key());
}

TEST(a_key_tells_outputs_and_casts_apart) {
  const Program a = parsed("cast(float16)"), b = parsed("cast(bfloat16)");
  CHECK(request_for(a).key() != request_for(b).key());
  LinkRequest wide = request_for(a);
  wide.dtypes[0] = DType::float64;
  CHECK(wide.key() != request_for(a).key());
  CHECK(chain_source(wide) != chain_source(request_for(a)));
}

constexpr KernelRow kTestRows[] = {
    SLUICE_KERNEL_ROW(ring, ring, rings, all, native, (word, 1), (2, word / 2), (1), Arguments, ring<Pipe>)
        SLUICE_KERNEL_ROW(tile, tile, tiles, half, native, (0, 0), (1, dtype == DType::float64 ? 3 : 4), (1), A, tile)};

TEST(a_table_names_kernels_and_gives_the_shapes_of_their_chains) {
  const KernelTable rings("op", kTestRows, schedule_variants());
  const LinkRequest direct = rings.request(0, DType::float32, Schedule::direct);
  CHECK(direct.kernel == "sluice_op_ring_float32" && direct.module == "op_rings_float32");
  CHECK(direct.pre.width == 4 && direct.pre.slices == 1 && direct.post.width == 2 && direct.post.slices == 2);
  CHECK(!direct.wide && direct.pre.program == nullptr);
  const LinkRequest bulk = rings.request(0, DType::float64, Schedule::bulk);
  CHECK(bulk.kernel == "sluice_op_ring_float64_bulk" && bulk.module == "op_rings_float64" && bulk.wide);
  CHECK(rings.request(0, DType::float64, Schedule::bulk).kernel.data() == bulk.kernel.data());
  const KernelTable tiles("op", kTestRows, {.names = {"", "1x64"}, .have_modules = true});
  const LinkRequest tile = tiles.request(1, DType::bfloat16, 1);
  CHECK(tile.kernel == "sluice_op_tile_bfloat16_1x64" && tile.module == "op_tiles_bfloat16_1x64");
  CHECK(tiles.request(1, DType::float64).post.slices == 3);
}

TEST(a_kernel_without_a_chain_ignores_its_program) {
  const Program program = parsed("relu");
  ChainCall none, one{.width = 4, .slices = 1};
  set_chain<1>(none, program, nullptr);
  set_chain<1>(one, program, nullptr);
  CHECK(none.program == nullptr && one.program == &program);
}

TEST(a_cpp_stage_is_a_function_whose_lines_are_the_users) {
  const Program program = parsed("relu|cpp(\"float y = x | 1;\\nreturn \\\"a,b\\\"[0] * y;\",soft,a=1.5,b=$2)|silu");
  CHECK(program.count == 3 && program.has_cpp() && program.operands == 3);
  const CppStage& stage = cpp_stage(program.stages[1].source);
  CHECK(stage.name == "soft" && stage.parameters.size() == 2 && stage.parameters[1] == "b");
  CHECK(stage.text == "float y = x | 1;\nreturn \"a,b\"[0] * y;");
  const std::string source = chain_source(request_for(program));
  CHECK(contains(source, "#line 1 \"soft\"\nfloat y = x | 1;\n"));
  CHECK(contains(source, "sluice_stage_0::apply(v[i], s[1].number[0], t2::get(lanes, i))"));
  CHECK(contains(explain_log(request_for(program), "soft(2): error: no"), "stage 'soft': float y"));
  CHECK(contains(chain_source(request_for(parsed("cpp(\"x + 1\",one)"))), "return (\n#line 1 \"one\"\nx + 1\n);"));
}

TEST(a_cpp_stages_fourth_parameter_is_in_the_next_slot) {
  const Program program = parsed("cpp(\"a+b+c+d\",f,a=1,b=2,c=3,d=$1)|relu");
  CHECK(program.count == 3 && program.stages[1].op == Op::more && program.stages[1].operand[0] == 1);
  CHECK(contains(chain_source(request_for(program)), "s[0].number[2], t1::get(lanes, i))"));
}

TEST(bad_cpp_stages_are_refused) {
  Program program;
  for (const char* text : {"cpp(x,f)", "cpp(\"\",f)", "cpp(\"x\")", "cpp(\"x\",1f)", "cpp(\"x\",f,x=1)",
                           "cpp(\"x\",f,a)", "cpp(\"x\",f,a=b)", "cpp(\"x\",f,1)"}) {
    CHECK(!parse_chain(text, 1, program).empty());
  }
}

TEST(cpp_stages_are_bounded) {
  CppStages stages(3, 40);
  const CppStage one{"f", "x + a", {"a"}}, other{"f", "x + b", {"b"}};
  CHECK(stages.intern(one) == 0 && stages.intern(other) == 1 && stages.intern(one) == 0);
  CHECK(stages.intern({"f", std::string(30, 'x'), {}}) == -1);  // too many bytes
  CHECK(stages.intern({"f", "x", {}}) == 2 && stages.intern({"g", "x", {}}) == -1);
  CHECK(stages.intern(other) == 1 && stages[1] == other && stages[2].text == "x");
}

TEST(a_fault_that_may_pass_is_tried_again) {
  LinkTable table(10, 10);
  LinkEntry& entry = *table.entry("chain");
  const auto now = LinkEntry::Clock::now();
  CHECK(!entry.rests(now));
  entry.fail(LinkFault::out_of_memory, "out of memory", now);
  CHECK(!is_lasting(entry.fault) && entry.rests(now) && entry.rests(now + std::chrono::milliseconds(900)));
  CHECK(!entry.rests(now + std::chrono::milliseconds(1100)));
  entry.fault = LinkFault::none;
  CHECK(!entry.rests(now));
  entry.fail(LinkFault::failed, "no image", now);
  CHECK(is_lasting(entry.fault) && is_lasting(LinkFault::rejected) && !is_lasting(LinkFault::postponed));
}

TEST(linked_kernels_are_bounded) {
  LinkTable table(100, 10);
  std::atomic<int> held = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) held += table.reserve();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(held == 100 && table.linked() == 100 && !table.reserve());
  table.give_back();
  CHECK(table.reserve() && table.set_limit(101) == 100 && table.reserve() && !table.reserve());
}

TEST(entries_without_a_kernel_are_forgotten) {
  LinkTable table(100, 10);
  const int kernel = 0;
  CHECK(table.reserve());
  table.entry("linked")->kernel = &kernel;
  const std::shared_ptr<LinkEntry> held = table.entry("held");
  held->calls = 7;
  for (int i = 0; i < 1000; ++i) table.entry("rejected " + std::to_string(i))->fault = LinkFault::rejected;
  CHECK(table.size() <= 1 + 10);
  CHECK(table.entry("linked")->kernel == &kernel && table.entry("held") == held && table.entry("held")->calls == 7);
  CHECK(table.entry("rejected 999")->fault == LinkFault::rejected);
  CHECK(table.entry("rejected 0")->fault == LinkFault::none);
}

TEST(a_shared_object_is_known_by_its_build) {
  const void* const here = reinterpret_cast<const void*>(&print_source);
  const void* const library = dlsym(RTLD_DEFAULT, "malloc");
  CHECK(!object_identity(here).empty());
  CHECK(object_identity(here) == object_identity(reinterpret_cast<const void*>(&contains)));
  CHECK(!object_identity(library).empty() && object_identity(library) != object_identity(here));
  CHECK(object_identity(nullptr).empty() && object_path(nullptr).empty());
  const std::vector<std::string> objects = loaded_objects();
  CHECK(std::find(objects.begin(), objects.end(), object_path(library)) != objects.end());
  CHECK(directory_of("/a/b/c") == "/a/b/" && directory_of("c").empty());
}
