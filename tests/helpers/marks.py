"""The marks of files whose tests need a GPU: `pytestmark = ON_GPU`."""

from __future__ import annotations

import os

import pytest
import torch

IS_PORTABLE = os.environ.get("SLUICE_DENSE") == "portable"


def _has_tensor_cores() -> bool:
    """Whether dense convolutions run on the tensor cores of this GPU."""
    if not torch.cuda.is_available():
        return False
    capability = torch.cuda.get_device_capability()
    return capability >= (8, 0) if IS_PORTABLE else capability == (9, 0)


ON_GPU = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]
# Every chain is linked at its first call.
LINKED_ON_GPU = [pytest.mark.gpu, pytest.mark.usefixtures("linked_always")]
ON_TENSOR_CORES = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not _has_tensor_cores(),
        reason=f"needs a CUDA device of compute capability {'8.0 or later' if IS_PORTABLE else '9.0'}",
    ),
]
