"""Every op has a row of the registry that drives the contract tests, and its own calls in the others."""

from __future__ import annotations

import re

import pytest
import torch

import sluice
from common import ROOT
from ops import OPS, every

pytestmark = pytest.mark.no_gpu
CALLS = ["raw", "operands", "written", "places", "arguments", "viewed", "viewed_outs"]
# Tests with calls of their own for each op, and the ops that they leave out.
OWN_CALLS = {
    "contracts/test_arguments.py": {"causal_conv1d_update"},
    "contracts/test_compile.py": {"causal_conv1d_update"},  # its state is changed
    "contracts/test_empty.py": set(),
    "contracts/test_flops.py": {"transform"},  # pointwise work counts nothing
    "contracts/test_gpu.py": {"causal_conv1d_update"},
    "contracts/test_plan_calls.py": {"causal_conv1d_update"},
    "contracts/test_vmap.py": set(),
    "linking/test_gpu_chains.py": {"conv_transpose1d", "causal_conv1d_update", "causal_conv_transpose1d"},
    "tools/test_binary.py": {"causal_conv_transpose1d"},  # its convolution is conv_transpose1d's
}


def test_every_public_op_has_a_row() -> None:
    raw = torch.ops.sluice
    assert set(OPS) == {name for name in sluice.__all__ if hasattr(raw, name) or hasattr(raw, f"{name}_chunk")}
    assert set(OPS) <= set(sluice.reference.__all__)


@pytest.mark.parametrize("op", OPS)
def test_a_row_has_what_the_contracts_need(op: str) -> None:
    row = OPS[op]
    assert row.plain in row.variants
    assert row.raw_op in [draw.__name__ for draw in row.drawn]
    assert row.broken_chains
    assert getattr(torch.ops.sluice, row.raw_op) in {call.op for call in row.refused("cpu")}
    assert all(getattr(row, name)("cpu") for name in CALLS)
    assert re.search(rf"\b{op}\b", (ROOT / "tests" / row.bad_calls).read_text())


@pytest.mark.parametrize("name", [*CALLS, "cast"])
def test_no_two_ops_have_calls_of_one_name(name: str) -> None:
    assert len(every(name, "cpu")) == sum(len(getattr(row, name)("cpu")) for row in OPS.values())


@pytest.mark.parametrize("name", OWN_CALLS)
def test_calls_that_are_in_no_row_are_there(name: str) -> None:
    text = (ROOT / "tests" / name).read_text()
    assert {op for op in OPS if not re.search(rf"\b{op}\b", text)} == OWN_CALLS[name]
