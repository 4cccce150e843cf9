"""Chunks of streams on a GPU: CUDA graphs, no synchronisation, packed weights, the sizes of codecs' layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sluice
from chunk_problems import TOLERANCE, check_chunk, error_of, history_of
from common import DTYPES, NARROW_TYPES, contiguous, permuted
from gpu_tensors import DEVICE, index, randn
from marks import ON_GPU
from sluice import stages
from sluice.pack import pack_transposed
from update_problems import assert_same_bits

pytestmark = ON_GPU

OPS = ["causal_conv1d", "causal_conv_transpose1d"]
CACHES = {"causal_conv1d": "state_cache", "causal_conv_transpose1d": "overlap_cache"}


def problem(
    op: str, dtype: torch.dtype, rows: int, inputs: int, outputs: int, taps: int, stride: int, length: int, slots: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Input, weight, bias and options of a chunk, whose rows have the last slots."""
    sizes = (outputs, inputs) if op == "causal_conv1d" else (inputs, outputs)
    weight = (randn(*sizes, taps) / (inputs * taps) ** 0.5).to(dtype)
    channels = inputs if op == "causal_conv1d" else outputs
    kind = dtype if op == "causal_conv1d" else torch.float64 if dtype == torch.float64 else torch.float32
    cache = permuted(randn(slots, channels, history_of(op, taps, stride, 1), dtype=kind))
    options = {"stride": stride, CACHES[op]: cache, "cache_indices": index(range(slots - rows, slots)).flip(0)}
    return randn(rows, inputs, length, dtype=dtype), weight, randn(outputs, dtype=dtype), options


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_under_sanitizers(op: str, dtype: torch.dtype) -> None:
    for rows, taps, stride, length in ((1, 3, 1, 1), (3, 7, 1, 4), (5, 4, 2, 6), (2, 1, 3, 3)):
        x, w, b, given = problem(op, dtype, rows, 24, 40, taps, stride, length, rows + 2)
        check_chunk(op, x, w, b, pre=stages.elu(), post=stages.silu(), **given)
        check_chunk(op, permuted(x), w, b, **given)


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_packed_weights(op: str, dtype: torch.dtype) -> None:
    """Results and states are as with the weight, in every layout, for the frames and slots of codecs."""
    for rows, inputs, outputs, taps, stride, length in (
        (1, 512, 512, 7, 1, 1), (16, 512, 512, 7, 1, 8), (8, 256, 512, 12, 6, 12), (64, 128, 64, 3, 1, 1),
        (8, 64, 128, 8, 4, 480), (3, 72, 40, 4, 2, 6), (4, 1, 64, 7, 1, 16), (2, 512, 256, 16, 8, 8),
    ):  # fmt: skip
        x, w, b, given = problem(op, dtype, rows, inputs, outputs, taps, stride, length, rows + 3)
        if op == "causal_conv1d":
            packed: Any = sluice.pack(w)
        else:
            packed = pack_transposed(w, None, stride, 1, channels_last=False)
        for layout in (contiguous, permuted):
            mine = {**given, CACHES[op]: given[CACHES[op]].clone(), "pre": stages.elu()}
            wanted, states = getattr(sluice.reference, op)(
                x.double(), w.double(), b.double(), **{**mine, CACHES[op]: mine[CACHES[op]].double()}
            )
            result = getattr(sluice, op)(layout(x), packed, b, **mine)
            assert error_of(result, wanted) <= TOLERANCE[dtype]
            assert error_of(mine[CACHES[op]], states) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("op", OPS)
def test_replays_of_a_cuda_graph(op: str, dtype: torch.dtype) -> None:
    """x, slots and flags are read, and the cache is written, at each replay; the host waits for nothing."""
    x, w, b, given = problem(op, dtype, 4, 64, 96, 4, 2, 6, 7)
    given |= {"has_initial_state": torch.ones(4, dtype=torch.bool, device=DEVICE), "post": stages.silu()}
    function, cache = getattr(sluice, op), given[CACHES[op]]
    twin = {**given, CACHES[op]: cache.clone()}
    function(x, w, b, **twin)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(x, w, b, **given)
    for replay in range(3):
        x.normal_()
        given["cache_indices"].copy_(torch.randperm(7, device=DEVICE)[:4] - replay % 2)
        given["has_initial_state"].logical_not_()
        twin[CACHES[op]].copy_(cache)
        graph.replay()
        torch.cuda.set_sync_debug_mode("error")
        try:
            wanted = function(x, w, b, **twin)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert_same_bits(result, wanted)
        assert_same_bits(cache, twin[CACHES[op]])


@pytest.mark.parametrize("op", OPS)
def test_two_streams(op: str) -> None:
    """Calls on different streams do not see each other."""
    calls = [problem(op, torch.float16, 8, 256, 256, 4, 2, 4, 9) for _ in range(4)]
    alone = []
    for x, w, b, given in calls:
        mine = {**given, CACHES[op]: given[CACHES[op]].clone()}
        alone.append([getattr(sluice, op)(x, w, b, **mine) for _ in range(20)])
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    together: list[list[torch.Tensor]] = [[] for _ in calls]
    for _ in range(20):
        for (x, w, b, given), stream, found in zip(calls, streams, together, strict=True):
            with torch.cuda.stream(stream):
                found.append(getattr(sluice, op)(x, w, b, **given))
    torch.cuda.synchronize()
    for mine, others in zip(together, alone, strict=True):
        for a, b in zip(mine, others, strict=True):
            assert_same_bits(a, b)
