"""Writes torch's own samples of an op, for tests/contracts/test_torch_samples.py: its test modules change torch where
they are imported, so that they are imported in a process of their own.

    torch_samples.py FILE OP ...
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
from typing import Any

import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.complex64]

Sample = tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]


def op_info(op: str) -> Any:
    """torch's description of an op. Its modules import expecttest, which no sample needs."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    return next(info for info in op_db if info.name == f"nn.functional.{op}")


def plain(sample: Any) -> Sample:
    return sample.input.detach(), tuple(sample.args), dict(sample.kwargs)


def main() -> None:
    path, *ops = sys.argv[1:]
    found: dict[str, dict[Any, list[Sample]]] = {}
    for op in ops:
        info = op_info(op)
        found[op] = {dtype: [plain(sample) for sample in info.sample_inputs("cpu", dtype)] for dtype in DTYPES}
        wrong = info.error_inputs("cpu") if info.error_inputs_func is not None else []
        found[op]["wrong"] = [plain(one.sample_input) for one in wrong]
    torch.save(found, path)


if __name__ == "__main__":
    main()
