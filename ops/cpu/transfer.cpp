// torch.ops.sluice._transfer_*: the engine's ops for the host (ops/transfer.cpp), and memory that streams read and
// write.
#include "ops/transfer.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/transfer/host_driver.h"
#include "kernels/transfer/mapping.h"
#include "kernels/transfer/staging_pool.h"
#include "ops/common/checks.h"
#include "ops/common/tensor_view.h"

namespace sluice {
namespace {

using namespace transfer;

// The kind of mapping, and whether it is writable.
std::vector<int64_t> mapping_info(int64_t address, int64_t bytes) {
  const MappingInfo info = mapping_of(reinterpret_cast<void*>(address), bytes);
  return {static_cast<int64_t>(info.kind), info.writable ? 1 : 0};
}

// Copies a tensor of the host to (`in`) or from `packed`, which has the same sizes and no gaps. False if the memory is
// a file's that has become too short.
bool copy_safely(const Tensor& host, const Tensor& packed, bool in) {
  const TensorView outer(host), inner(packed);
  check(outer.rank == inner.rank && outer.rank <= StridedCopy::kMaxRank &&
            std::equal(outer.sizes, outer.sizes + outer.rank, inner.sizes) && outer.element_size == inner.element_size,
        "_transfer_copy: both tensors must have one shape and element size, and at most ", StridedCopy::kMaxRank,
        " dimensions");
  int order[StridedCopy::kMaxRank];
  std::iota(order, order + outer.rank, 0);
  std::stable_sort(order, order + outer.rank, [&](int a, int b) { return inner.strides[a] > inner.strides[b]; });
  int64_t sizes[StridedCopy::kMaxRank], strides[StridedCopy::kMaxRank];
  for (int64_t i = 0; i < outer.rank; ++i) {
    sizes[i] = outer.sizes[order[i]];
    strides[i] = outer.strides[order[i]] * outer.element_size;
  }
  const StridedCopy copy = make_copy(static_cast<char*>(outer.data), static_cast<char*>(inner.data), outer.element_size,
                                     static_cast<int>(outer.rank), sizes, strides);
  return copy_guarded(in ? Direction::in : Direction::out, copy, 0, copy.bytes(), copy.packed);
}
void advise_huge_pages(int64_t address, int64_t bytes) { advise_huge(reinterpret_cast<void*>(address), bytes); }

}  // namespace

std::unique_ptr<transfer::Driver> make_driver(int, const transfer::EngineOptions& options) {
  return transfer::make_host_driver(options.events());
}

STABLE_TORCH_LIBRARY_FRAGMENT(sluice, m) {
  define_transfer(m, "_transfer_");
  m.def("_transfer_mapping(int address, int bytes) -> int[]");
  m.def("_transfer_advise_huge(int address, int bytes) -> ()");
  m.def("_transfer_copy(Tensor host, Tensor packed, bool inward) -> bool");
}

STABLE_TORCH_LIBRARY_IMPL(sluice, CompositeExplicitAutograd, m) {
  implement_transfer(m, "_transfer_");
  m.impl("_transfer_mapping", TORCH_BOX(&mapping_info));
  m.impl("_transfer_advise_huge", TORCH_BOX(&advise_huge_pages));
  m.impl("_transfer_copy", TORCH_BOX(&copy_safely));
}

}  // namespace sluice
