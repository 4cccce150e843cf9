"""Whether a result is right. Wrong results are neither timed nor published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .suite import Case, Workload

# Relative L2 error against float64 that a result may have, by dtype. The factors of TF32 have float16's bits.
TOLERANCES = {"bf16": 1e-2, "fp16": 2e-3, "fp32": 1e-6, "tf32": 2e-3}

# The same for "fp32" after torch's convolutions. A sum of n terms one after another has an error of about
# sqrt(n / 2) / 2^25, and the longest of suite `random` have 266,000 terms.
_TORCHS_FP32 = 2e-5


class WrongResultError(Exception):
    """A result differs from its reference by more than its dtype allows: its time means nothing."""


class OpCalls(TorchDispatchMode):
    """Counts the calls of causal convolutions: of whole prompts, and of one more token."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prefill = self.decode = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "sluice":
            if "update" in str(func):
                self.decode += 1
            else:
                self.prefill += 1
        return func(*args, **(kwargs or {}))


def relative_error(result: torch.Tensor, reference: torch.Tensor | Iterable[torch.Tensor]) -> float:
    """The L2 norm of the difference over that of the reference, in float64; NaN where the result has one.

    Args:
        result: what is checked.
        reference: the whole, or its slices along dimension 0.

    Raises:
        ValueError: the slices do not have as many rows as the result.
    """
    if isinstance(reference, torch.Tensor):
        return float(torch.div(*_norms(result, reference)))
    begin, norms = 0, []
    for rows in reference:
        norms.append(_norms(result[begin : begin + len(rows)], rows))
        begin += len(rows)
    if begin != len(result):
        raise ValueError(f"reference must have the result's {len(result)} rows, got {begin}")
    difference, expected = (torch.linalg.vector_norm(torch.stack(parts)) for parts in zip(*norms, strict=True))
    return float(difference / expected)


def _norms(result: torch.Tensor, reference: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The norms of the difference and of the reference."""
    expected = reference.double()
    difference = result.to(expected.device).double() - expected
    return torch.linalg.vector_norm(difference), torch.linalg.vector_norm(expected)


def _tolerance(case: Case, workload: Workload) -> float:
    if case.tolerance is not None:
        return case.tolerance
    dtype = str(case.params["dtype"])
    return _TORCHS_FP32 if dtype == "fp32" and workload.plan.schedule == "aten" else TOLERANCES[dtype]


def check(case: Case, workload: Workload) -> float:
    """The relative error of the case's result.

    The result is written over NaNs, so that an element that no thread writes cannot pass. The call that is timed
    allocates its own result and must give the same bits. After aten, and in a whole network, both results must be
    close to the reference instead, because torch's kernels may add with atomics.

    Raises:
        WrongResultError: the error is over the tolerance, or the two calls differ.
    """
    may_vary = workload.plan.schedule in ("aten", "model")
    # A program of CUDA graphs writes the next result into the same memory.
    result = workload.ours().clone() if may_vary else workload.ours()
    poisoned = torch.full_like(result, float("nan"))
    workload.write(poisoned)
    # The reference is a convolution of torch's in float64. cuDNN would search algorithms for a second to run it once.
    enabled, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False
    try:
        reference = workload.reference()
        error = relative_error(poisoned, reference)
        if may_vary:  # their references are no iterators of slices, which could be read only once
            error = max(error, relative_error(result, reference))
    finally:
        torch.backends.cudnn.enabled = enabled
    tolerance = _tolerance(case, workload)
    if not error <= tolerance:
        raise WrongResultError(f"{case.name}: relative L2 error must be at most {tolerance:g}, got {error:g}")
    if not may_vary and not torch.equal(result, poisoned):
        raise WrongResultError(f"{case.name}: the call with out= must give the same bits as the one without")
    return error
