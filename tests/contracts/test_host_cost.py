"""What a plain call costs the host, in Python functions: a time would depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

import sluice
from sluice import stages

pytestmark = pytest.mark.no_gpu

X, WEIGHT, BIAS, STATE = torch.randn(1, 4, 16), torch.randn(4, 1, 4), torch.randn(4), torch.randn(1, 4, 3)
SILU, MODULE = stages.silu(), sluice.nn.Conv1d(4, 4, 4, groups=4).requires_grad_(False)

# A call, and the Python functions that it ran when the number was last looked at.
CALLS: dict[str, tuple[Callable[[], object], int]] = {
    "transform": (lambda: sluice.transform(X, SILU), 11),
    "conv1d": (lambda: sluice.conv1d(X, WEIGHT, BIAS, groups=4), 8),
    "conv_transpose1d": (lambda: sluice.conv_transpose1d(X, WEIGHT, BIAS, groups=4), 8),
    "causal_conv1d": (lambda: sluice.causal_conv1d(X, WEIGHT[:, 0], BIAS), 16),
    "dense causal_conv1d": (lambda: sluice.causal_conv1d(X, WEIGHT, BIAS, groups=4), 30),
    "a chunk": (lambda: sluice.causal_conv1d(X, WEIGHT, BIAS, stride=2, groups=4, state_cache=STATE), 35),
    "causal_conv_transpose1d": (lambda: sluice.causal_conv_transpose1d(X, WEIGHT, BIAS, stride=2, groups=4), 25),
    "a transposed chunk": (
        lambda: sluice.causal_conv_transpose1d(X, WEIGHT, BIAS, stride=2, groups=4, overlap_cache=STATE),
        29,
    ),
    "causal_conv1d_update": (lambda: sluice.causal_conv1d_update(X[..., 0], STATE, WEIGHT[:, 0], BIAS), 15),
    "nn.Conv1d": (lambda: MODULE(X), 28),
}


# A module's call is repeated without gradients only.
@pytest.mark.parametrize(
    ("name", "grad"), [*((name, False) for name in CALLS), *((name, True) for name in CALLS if name != "nn.Conv1d")]
)
def test_a_plain_call_runs_few_python_functions(name: str, grad: bool) -> None:
    call, most = CALLS[name]
    ran: list[str] = []

    def note(frame: object, event: str, argument: object) -> None:
        if event == "call":
            ran.append(frame.f_code.co_name)  # type: ignore[attr-defined]

    with torch.set_grad_enabled(grad):
        call()
        call()  # what a first call prepares is there
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(None)
    assert len(ran) - 1 <= most, ran  # without the lambda
