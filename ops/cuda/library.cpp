// The namespace torch.ops.sluice in _C_cuda, which is loaded after _C: kernels for GPUs.
#include "ops/ops.h"

namespace sluice {

STABLE_TORCH_LIBRARY_IMPL(sluice, CUDA, m) {
  for (const Registration* op : kOps) op->implement(m);
}

}  // namespace sluice
