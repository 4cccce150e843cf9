"""The marks of files whose tests need a GPU: `pytestmark = ON_GPU`."""

from __future__ import annotations

import pytest
import torch

ON_GPU = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]
# Every chain is linked at its first call.
LINKED_ON_GPU = [pytest.mark.gpu, pytest.mark.usefixtures("linked_always")]
ON_TENSOR_CORES = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a CUDA device of compute capability 9.0",
    ),
]
