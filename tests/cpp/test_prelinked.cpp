#include <set>

#include "kernels/linking/prelinked.h"
#include "kernels/linking/source.h"
#include "kernels/operators/conv1d/dense/prelinked.h"
#include "kernels/operators/conv1d/link.h"
#include "tests/cpp/check.h"

using namespace sluice;

namespace {

std::string name(char letter) { return std::string(kPrelinkedName, letter); }

}  // namespace

TEST(prelinked_code_is_found_by_its_name) {
  const std::string first(70'000, 'x'), second("y\0z", 3);
  const std::string list = prelinked_entry(name('a'), first) + prelinked_entry(name('b'), second);
  CHECK(count_prelinked(list) == 2 && count_prelinked("") == 0);
  CHECK(find_prelinked(list, name('a')) == first && find_prelinked(list, name('b')) == second);
  CHECK(find_prelinked(list, name('c')).empty() && find_prelinked("", name('a')).empty());
}

TEST(what_is_cut_off_or_damaged_is_not_prelinked) {
  const std::string list = prelinked_entry(name('a'), "code") + prelinked_entry(name('b'), "more");
  for (std::size_t size = 0; size < list.size(); ++size) {
    const std::string_view cut(list.data(), size);
    CHECK(find_prelinked(cut, name('b')).empty());
    CHECK(find_prelinked(cut, name('a')).empty() == (size < list.size() / 2));
  }
  for (std::size_t byte = kPrelinkedName; byte < kPrelinkedName + 8; ++byte) {
    std::string damaged = list;
    damaged[byte] = '\xff';  // a byte of the first size, which then exceeds the list
    CHECK(count_prelinked(damaged) == 0 && find_prelinked(damaged, name('b')).empty());
  }
}

TEST(every_dense_kernel_comes_with_every_promised_chain) {
  std::set<std::string> keys;
  std::set<std::string_view> kernels;
  std::size_t layouts = 0;
  for (const PrelinkedChains& chains : kDensePrelinked) layouts += chains.in_channels ? 2 : 1;
  for_each_prelinked([&](const LinkRequest& request) {
    kernels.insert(request.kernel);
    keys.insert(std::string(request.kernel) + chain_source(request));
  });
  CHECK(kernels.size() == 2 * 2 * std::size(kDenseShapes));
  CHECK(keys.size() == 2 * std::size(kDenseShapes) * layouts);
}

TEST(a_dense_kernel_without_a_bias_is_the_one_with_a_bias) {
  Conv1dParams params{};
  params.input.dtype = params.output.dtype = params.bias.dtype = DType::bfloat16;
  Conv1dPlan plan;
  plan.which = Conv1dMethod::dense;
  params.bias.data = &plan;
  const LinkKey with_bias = link_request(params, plan).key();
  params.bias = {};
  CHECK(link_request(params, plan).key() == with_bias);
}
