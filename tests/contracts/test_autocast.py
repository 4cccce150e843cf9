"""Autocast: raw and public convolutions cast as F.conv1d does, nothing else casts; eager and compiled."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.optests import opcheck

import sluice
from common import HALF_TYPES, relative_error
from ops import every
from sluice import stages

calls = functools.partial(every, "cast")


class Block(torch.nn.Module):
    """The README's block, by raw ops alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(64, 1, 3))
        self.register_buffer("gain", torch.rand(64, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.sluice.conv1d(x, self.weight, None, 1, 1, 1, 64, post="gelu")
        return torch.ops.sluice.transform(y, "mul($0)|clamp(-1,1)", [self.gain])


def block_in_torch(block: Block, x: torch.Tensor) -> torch.Tensor:
    y = F.gelu(F.conv1d(x, block.weight, None, 1, 1, 1, 64).float())
    return (y * block.gain).clamp(-1, 1)


@pytest.mark.parametrize("backend", [None, "eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_readmes_block_behind_a_module_of_torch(device: str, dtype: torch.dtype, backend: str | None) -> None:
    torch._dynamo.reset()
    first, block = torch.nn.Conv1d(8, 64, 5, padding=2).to(device), Block().to(device)
    model = torch.nn.Sequential(first, block)
    if backend is not None:
        model = torch.compile(model, backend=backend, fullgraph=True)
    # A length for each dtype: the cache of compiled graphs of torch 2.11 does not tell what autocast casts to.
    x = torch.randn(2, 8, 50 if dtype == torch.bfloat16 else 52, device=device)
    with torch.inference_mode(), torch.autocast(device, dtype=dtype):
        result = model(x)
        wanted = block_in_torch(block, first(x))
    assert result.dtype == dtype
    # Inductor keeps more digits between the first module and the block: single elements are a few roundings apart.
    assert relative_error(result, wanted) < 4 * torch.finfo(dtype).eps


def test_autocast_inside_of_a_compiled_function(device: str) -> None:
    w = torch.randn(4, 1, 3, device=device)

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast(device, dtype=torch.bfloat16):
            inside = torch.ops.sluice.conv1d(x, w, None, 1, 0, 1, 4)
        return inside, torch.ops.sluice.conv1d(x, w, None, 1, 0, 1, 4)

    inside, outside = torch.compile(step, fullgraph=True)(torch.randn(2, 4, 20, device=device))
    assert (inside.dtype, outside.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.parametrize("name", calls("cpu"))
@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_raw_ops_and_functions_cast_as_torch_does(device: str, name: str, dtype: torch.dtype) -> None:
    raw, function = calls(device)[name]
    x, w, b = torch.randn(2, 4, 20), torch.randn(4, 1, 3), torch.randn(4)
    x, w, b = x.to(device), w.to(device), b.to(device)
    wanted = raw(x.to(dtype), w.to(dtype), b.to(dtype))
    double = raw(x.double(), w.double(), b.double())
    for call in (raw, function):
        with torch.autocast(device, dtype=dtype):
            for given in ((x, w, b), (x.to(dtype), w, b), (x, w.to(dtype), b.to(dtype))):
                assert torch.equal(call(*given), wanted)
            assert torch.equal(call(x.double(), w.double(), b.double()), double)  # float64 stays, as in torch
            with torch.autocast(device, enabled=False):
                assert call(x, w, b).dtype == torch.float32
        assert call(x, w, b).dtype == torch.float32
        if device != "cpu":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                assert call(x, w, b).dtype == torch.float32


def test_transform_and_filter2d_cast_nothing(device: str) -> None:
    x, w = torch.randn(2, 4, 30, 20, device=device), torch.randn(4, 3, 3, device=device)
    wanted = [torch.ops.sluice.filter2d(x, w), torch.ops.sluice.transform(x, "silu")]
    with torch.autocast(device, dtype=torch.bfloat16):
        raw = [torch.ops.sluice.filter2d(x, w), torch.ops.sluice.transform(x, "silu")]
        public = [sluice.filter2d(x, w), sluice.transform(x, stages.silu())]
    for results in (raw, public):
        assert all(map(torch.equal, results, wanted))


def test_a_chain_by_references_is_rounded_once(device: str) -> None:
    soft = stages.cpp("x * a", a=1.25, reference=lambda x, a: x * a)
    x, w = torch.randn(2, 4, 200, device=device), torch.randn(4, 1, 3, device=device)
    half = [x.bfloat16(), w.bfloat16()]
    with torch.autocast(device, dtype=torch.bfloat16):
        conv = sluice.conv1d(x, w, groups=4, pre=soft, post=soft)
        causal, states = sluice.causal_conv1d(x, w[:, 0], post=soft, return_final_states=True)
    assert torch.equal(conv, sluice.conv1d(*half, groups=4, pre=soft, post=soft))
    assert torch.equal(causal, sluice.causal_conv1d(half[0], half[1][:, 0], post=soft))
    assert states.dtype == torch.bfloat16


def test_opcheck_under_autocast(device: str) -> None:
    x, w = torch.randn(2, 4, 20, device=device), torch.randn(4, 1, 3, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        opcheck(torch.ops.sluice.conv1d.default, (x, w, None, 1, 1, 1, 4), {"post": "silu"})
        opcheck(torch.ops.sluice.causal_conv1d.default, (x, w[:, 0]))
        opcheck(torch.ops.sluice.causal_conv1d_update.default, (x, torch.ones_like(x), w[:, 0]))


@pytest.mark.parametrize("compiled", [False, True])
def test_on_the_device_meta(compiled: bool) -> None:
    def step() -> tuple[torch.Tensor, ...]:
        x, w, y = torch.randn(2, 6, 20), torch.randn(6, 1, 3), torch.randn(6, 1)
        return (
            sluice.conv1d(x, w, groups=6, padding="same", post=stages.mul(y)),
            sluice.causal_conv1d(x, w[:, 0], activation="silu"),
            sluice.causal_conv1d_update(x, torch.randn(2, 6, 3), w[:, 0], activation="silu"),
            sluice.filter2d(x, torch.randn(3, 3)),
            sluice.transform(x, stages.add(y) | stages.silu()),
            *sluice.transform(x, [stages.add(y), stages.silu()]),
            torch.nn.functional.silu(x),
        )

    with torch.device("meta"):
        results = (torch.compile(step, fullgraph=True) if compiled else step)()
    assert [tuple(result.shape) for result in results] == [(2, 6, 20)] * 8
    # Code compiled by torch 2.11 returns CPU tensors there, for torch's own ops too.
    assert {result.device.type for result in results} == {results[-1].device.type if compiled else "meta"}
