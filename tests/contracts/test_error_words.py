"""Errors name the op and its arguments, not torch's shims, build paths or Python attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import sluice
from ops import every
from sluice import stages

pytestmark = pytest.mark.no_gpu
SILU = stages.silu()
FOREIGN = (
    "aoti_torch",
    "aten::",
    "has no attribute",
    "object is not",
    "/include/",
    "dtype #",
    "Could not run",
    "index out",
)


def strange_tensors() -> dict[str, object]:
    """Values that no op computes with; some are not tensors."""
    x = torch.zeros(2, 6, 20)
    return {
        "float8": x.to(torch.float8_e4m3fn),
        "uint16": x.to(torch.uint16),
        "bits": x.to(torch.uint8).view(torch.bits8),
        "float4": x.to(torch.uint8).view(torch.float4_e2m1fn_x2),
        "complex": x.to(torch.complex64),
        "coo": x.to_sparse(),
        "csr": x.to_sparse_csr(),
        "mkldnn": x.to_mkldnn(),
        "quantized": torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
        "nested": torch.nested.nested_tensor([torch.zeros(6, 20), torch.zeros(6, 18)]),
        "jagged": torch.nested.nested_tensor([torch.zeros(6, 20), torch.zeros(5, 20)], layout=torch.jagged),
        "scalar": torch.tensor(1.0, dtype=torch.int32),
        "list": [1.0],
        "array": np.zeros((2, 6, 20), np.float32),
        "text": "x",
    }


@pytest.mark.parametrize("name", strange_tensors())
@pytest.mark.filterwarnings("ignore")  # torch's, of tensors that are a prototype
def test_what_is_no_dense_tensor_is_refused_in_our_words(name: str) -> None:
    t: Any = strange_tensors()[name]
    calls = every("arguments", "cpu") | {"stream": lambda t: sluice.stream_map(SILU, t)}
    for place, call in calls.items():
        if (name, place) in {("array", "stream")}:  # which is taken
            continue
        with pytest.raises((TypeError, ValueError)) as raised:
            call(t)
        assert not any(word in str(raised.value) for word in FOREIGN), f"{place}: {raised.value}"


@pytest.mark.parametrize("name", ["coo", "csr", "nested", "bits", "float8"])
@pytest.mark.filterwarnings("ignore")
def test_raw_ops_refuse_such_operands_in_our_words(name: str) -> None:
    with pytest.raises(RuntimeError, match="^transform: chain operand 0 must "):
        torch.ops.sluice.transform(torch.zeros(2, 6, 20), "add($0)", [strange_tensors()[name]])


def test_a_failure_of_torchs_own_convolution_names_the_op() -> None:
    huge, w = torch.zeros(1).expand(1, 6, 1 << 45), torch.randn(6, 6, 3)
    with pytest.raises(RuntimeError, match="^conv1d: a torch op that it calls failed") as raised:
        sluice.conv1d(huge, w)
    assert not any(word in str(raised.value) for word in FOREIGN)
    with pytest.raises(RuntimeError, match="^conv_transpose1d: a torch op that it calls failed") as raised:
        sluice.conv_transpose1d(huge, w)
    assert not any(word in str(raised.value) for word in FOREIGN)
