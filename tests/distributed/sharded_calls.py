"""Calls of every op with DTensors in all placements, compared on every rank with the call of whole tensors."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor, init_device_mesh

import sluice
import sluice.distributed
from common import TOLERANCE, relative_error
from sluice import stages

Where = dict[str, Sequence[Placement]]


@dataclasses.dataclass(frozen=True)
class Case:
    """A function of tensors, their shapes or values by name, the raw op that it runs, and what it writes."""

    op: str
    function: Callable[..., Any]
    tensors: dict[str, Any]
    written: tuple[str, ...] = ()

    def draw(self) -> dict[str, torch.Tensor]:
        return {
            name: torch.randn(value) if isinstance(value, tuple) else torch.tensor(value)
            for name, value in self.tensors.items()
        }


def chain(**stages_of: torch.Tensor | None) -> sluice.Chain | None:
    """The chain of the given stages whose tensor is there."""
    found = [getattr(stages, name)(tensor) for name, tensor in stages_of.items() if tensor is not None]
    return None if not found else sluice.Chain(tuple(one for part in found for one in part.stages))


def convolution(**numbers: Any) -> Callable[..., Any]:
    def function(x, w, b=None, g=None, h=None):
        return sluice.conv1d(x, w, b, pre=chain(mul=g), post=chain(add=h), **numbers)

    return function


def transposed(**numbers: Any) -> Callable[..., Any]:
    def function(x, w, b, h):
        return sluice.conv_transpose1d(x, w, b, stride=2, padding=1, post=stages.mul(h) | stages.silu(), **numbers)

    return function


def causal(x, w, b=None, s=None, g=None, r=None, **options):
    return sluice.causal_conv1d(x, w, b, activation="silu", initial_states=s, pre=chain(mul=g), residual=r, **options)


def with_states(**options: Any) -> Callable[..., Any]:
    def function(x, w, s=None, starts=None):
        states = {"initial_states": s, "cu_seqlens": starts}
        return sluice.causal_conv1d(x, w, **states, return_final_states=True, **options)

    return function


def update(x, w, state, h=None, seqlens=None, slots=None):
    chosen = {"cache_seqlens": seqlens, "conv_state_indices": slots}
    return sluice.causal_conv1d_update(x, state, w, **chosen, post=chain(mul=h))


def dense_causal(**numbers: Any) -> Callable[..., Any]:
    def function(x, w, b=None, cache=None, slots=None, flags=None, g=None, h=None):
        given = {"state_cache": cache, "cache_indices": slots, "has_initial_state": flags}
        return sluice.causal_conv1d(x, w, b, pre=chain(mul=g), post=chain(add=h), **given, **numbers)

    return function


def upsampled(**numbers: Any) -> Callable[..., Any]:
    def function(x, w, b=None, cache=None, slots=None, flags=None, g=None, h=None):
        given = {"overlap_cache": cache, "cache_indices": slots, "has_initial_state": flags}
        chains = {"pre": chain(mul=g), "post": chain(add=h)}
        return sluice.causal_conv_transpose1d(x, w, b, **{"stride": 2, **given, **chains, **numbers})

    return function


def transform_list(x, g, h):
    return sluice.transform(x, [stages.mul(g), stages.add(h) | stages.cast(torch.float64)])


CASES: dict[str, Case] = {
    "chain": Case(
        "transform", lambda x, g, h: (stages.mul(g) | stages.add(h) | stages.silu())(x),
        {"x": (4, 5, 6), "g": (5, 1), "h": (4, 1, 6)},
    ),
    "list of chains": Case("transform_many", transform_list, {"x": (4, 6), "g": (6,), "h": (4, 1)}),
    "depthwise": Case(
        "conv1d", convolution(groups=6, padding="same"),
        {"x": (4, 6, 9), "w": (6, 1, 3), "b": (6,), "g": (6, 1), "h": (4, 6, 9)},
    ),
    "depthwise, strided": Case(
        "conv1d", convolution(groups=5, stride=2, padding=3), {"x": (3, 5, 13), "w": (5, 1, 4), "g": (3, 1, 13)}
    ),
    "depthwise, longer result": Case("conv1d", convolution(groups=4, padding=6), {"x": (4, 4, 5), "w": (4, 1, 2)}),
    "four groups": Case("conv1d", convolution(groups=4, dilation=2), {"x": (2, 8, 10), "w": (12, 2, 3), "b": (12,)}),
    "two groups": Case("conv1d", convolution(groups=2), {"x": (4, 6, 10), "w": (4, 3, 3)}),
    "dense": Case(
        "conv1d", convolution(padding=1), {"x": (4, 3, 8), "w": (6, 3, 3), "b": (6,), "h": (6, 1), "g": (3, 8)}
    ),
    "dense, unbatched": Case("conv1d", convolution(stride=3), {"x": (4, 16), "w": (5, 4, 6), "b": (5,)}),
    "transposed": Case(
        "conv_transpose1d", transposed(), {"x": (4, 3, 8), "w": (3, 6, 4), "b": (6,), "h": (4, 6, 1)}
    ),
    "transposed depthwise": Case(
        "conv_transpose1d", transposed(groups=4), {"x": (2, 4, 8), "w": (4, 1, 4), "b": (4,), "h": (4, 1)}
    ),
    "stencil": Case(
        "filter2d", lambda x, k, b: sluice.filter2d(x, k, b, post="silu"), {"x": (4, 3, 8, 8), "k": (3, 3), "b": (1,)}
    ),
    "stencil of channels": Case(
        "filter2d", sluice.filter2d, {"image": (2, 4, 8, 5), "kernel": (4, 3, 3), "bias": (4,)}
    ),
    "separable stencil": Case(
        "filter2d", lambda x, column, row, b: sluice.filter2d(x, (column, row), b, padding="valid"),
        {"x": (2, 4, 8, 5), "column": (4, 3), "row": (4, 2), "b": (4,)},
    ),
    "causal": Case("causal_conv1d", causal, {"x": (4, 6, 9), "w": (6, 4), "b": (6,), "s": (4, 6, 3), "r": (4, 6, 9)}),
    "causal, pieces shorter than the history": Case(
        "causal_conv1d", causal, {"x": (2, 4, 5), "w": (4, 6), "g": (4, 5), "s": (2, 4, 5)}
    ),
    "final states": Case(
        "causal_conv1d_final_states", with_states(dilation=2), {"x": (4, 6, 9), "w": (6, 4), "s": (4, 6, 6)}
    ),
    "final states of few taps": Case(
        "causal_conv1d_sequences", with_states(), {"x": (4, 6, 9), "w": (6, 4), "s": (4, 6, 3)}
    ),
    "ids": Case(
        "causal_conv1d_sequences", lambda x, w, ids: causal(x, w, seq_idx=ids),
        {"x": (4, 4, 6), "w": (4, 4), "ids": [[0, 0, 1, 1, 1, -1], [0] * 6, [2, 2, 2, 2, 3, 3], [0, 1, 2, 3, 4, 5]]},
    ),
    "packed": Case(
        "causal_conv1d_sequences", with_states(), {"x": (1, 4, 9), "w": (4, 3), "starts": [0, 2, 2, 9]}
    ),
    "cache of rows": Case(
        "causal_conv1d_paged", lambda x, w, cache: causal(x, w, state_cache=cache),
        {"x": (4, 4, 5), "w": (4, 3), "cache": (4, 4, 3)}, ("cache",),
    ),
    "cache of slots": Case(
        "causal_conv1d_paged", lambda x, w, cache, slots: causal(x, w, state_cache=cache, cache_indices=slots),
        {"x": (2, 4, 5), "w": (4, 3), "cache": (5, 4, 2), "slots": [3, 1]}, ("cache",),
    ),
    "dense causal rows": Case(
        "conv1d", dense_causal(stride=2), {"x": (4, 3, 8), "w": (6, 3, 5), "b": (6,), "h": (6, 1), "g": (3, 8)}
    ),
    "dense causal rows, replicated": Case(
        "conv1d", dense_causal(padding_mode="replicate"), {"x": (4, 3, 8), "w": (6, 3, 5), "g": (3, 1)}
    ),
    "causal transposed rows": Case(
        "conv_transpose1d", upsampled(), {"x": (4, 3, 8), "w": (3, 6, 5), "b": (6,), "h": (4, 6, 1)}
    ),
    "chunk of rows": Case(
        "causal_conv1d_chunk", dense_causal(stride=2),
        {"x": (4, 3, 8), "w": (8, 3, 5), "b": (8,), "cache": (4, 3, 4), "g": (3, 1), "h": (4, 8, 1)}, ("cache",),
    ),
    "chunk with flags": Case(
        "causal_conv1d_chunk", dense_causal(padding_mode="replicate"),
        {"x": (4, 3, 2), "w": (6, 3, 3), "cache": (4, 3, 2), "flags": [True, False, False, True]}, ("cache",),
    ),
    "chunk of slots": Case(
        "causal_conv1d_chunk", dense_causal(),
        {"x": (2, 3, 5), "w": (6, 3, 3), "cache": (5, 3, 2), "slots": [3, 1], "flags": [True, False]}, ("cache",),
    ),
    "chunk of two groups": Case(
        "causal_conv1d_chunk", dense_causal(groups=2),
        {"x": (4, 6, 5), "w": (4, 3, 3), "b": (4,), "cache": (4, 6, 3), "g": (6, 1)}, ("cache",),
    ),
    "depthwise chunk": Case(
        "causal_conv1d_chunk", dense_causal(groups=5),
        {"x": (3, 5, 4), "w": (5, 1, 3), "cache": (3, 5, 2), "g": (5, 1)}, ("cache",),
    ),
    "dense final states": Case(
        "causal_conv1d_chunk", with_states(stride=2), {"x": (4, 3, 8), "w": (6, 3, 5), "s": (4, 3, 3)}
    ),
    "dense final states alone": Case(
        "causal_conv1d_chunk", with_states(padding_mode="replicate"), {"x": (4, 3, 8), "w": (6, 3, 5)}
    ),
    "transposed chunk of rows": Case(
        "causal_conv_transpose1d_chunk", upsampled(),
        {"x": (4, 3, 5), "w": (3, 6, 5), "b": (6,), "cache": (4, 6, 4), "g": (3, 5), "h": (4, 6, 1)}, ("cache",),
    ),
    "transposed chunk of slots": Case(
        "causal_conv_transpose1d_chunk", upsampled(),
        {"x": (2, 3, 5), "w": (3, 6, 4), "cache": (5, 6, 2), "slots": [3, -1], "flags": [True, False]}, ("cache",),
    ),
    "transposed chunk of two groups": Case(
        "causal_conv_transpose1d_chunk", upsampled(groups=2),
        {"x": (4, 6, 5), "w": (6, 2, 3), "b": (4,), "cache": (4, 4, 1)}, ("cache",),
    ),
    "transposed depthwise chunk": Case(
        "causal_conv_transpose1d_chunk", upsampled(groups=5, stride=1),
        {"x": (3, 5, 4), "w": (5, 1, 3), "cache": (3, 5, 2), "h": (5, 1)}, ("cache",),
    ),
    "update": Case(
        "causal_conv1d_update", update, {"x": (4, 6), "w": (6, 4), "state": (4, 6, 3), "h": (6,)}, ("state",)
    ),
    "circular update": Case(
        "causal_conv1d_update", update,
        {"x": (4, 4, 2), "w": (4, 3), "state": (4, 4, 5), "seqlens": [0, 1, 7, 3]}, ("state",),
    ),
    "update of slots": Case(
        "causal_conv1d_update", update, {"x": (3, 4), "w": (4, 3), "state": (6, 4, 2), "slots": [5, 0, 2]}, ("state",)
    ),
}  # fmt: skip


def placements(case: Case, name: str, tensor: torch.Tensor) -> list[Placement]:
    """All placements of an argument; a written one cannot be partial."""
    found: list[Placement] = [Replicate(), *(Shard(d) for d in range(tensor.dim()))]
    return found if name in case.written or not tensor.is_floating_point() else [*found, Partial()]


def distributed(tensor: torch.Tensor, mesh: Any, where: Sequence[Placement]) -> DTensor:
    """The tensor in these placements; a partial one has its values on the first rank and zeros on others."""
    whole = [Replicate() if isinstance(one, Partial) else one for one in where]
    local = distribute_tensor(tensor.clone(), mesh, whole).to_local()
    for dim, one in enumerate(where):
        if isinstance(one, Partial) and mesh.get_local_rank(dim) > 0:
            local = torch.zeros_like(local)
    return DTensor.from_local(local, mesh, where, run_check=False, shape=tensor.shape, stride=tensor.stride())


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(name: str, mesh: Any, where: Where) -> list[DTensor]:
    """Compares one call in these placements; returns its results."""
    case = CASES[name]
    torch.manual_seed(len(name))
    tensors = case.draw()
    spread = {key: distributed(tensor, mesh, where[key]) for key, tensor in tensors.items()}
    expected, results = flat(case.function(**tensors)), flat(case.function(**spread))
    written = [(tensors[key], spread[key]) for key in case.written]
    for wanted, found in [*zip(expected, results, strict=True), *written]:
        assert isinstance(found, DTensor)
        whole = found.full_tensor()
        assert found.shape == wanted.shape == whole.shape, (where, found.shape, whole.shape)
        assert found.stride() == wanted.stride(), (where, found.stride(), wanted.stride())
        assert found.dtype == wanted.dtype == found.to_local().dtype, where
        error = relative_error(whole, wanted)
        assert error <= TOLERANCE[wanted.dtype], (where, found.placements, error)
    assert all(list(spread[key].placements) == list(where[key]) for key in case.written), where
    return results


def try_placements(name: str, seed: int, most: int) -> int:
    """Tries the placements of all tensors on a mesh of one dimension, some of them where there are more than `most`."""
    mesh, case = init_device_mesh("cpu", (dist.get_world_size(),)), CASES[name]
    kinds = {key: placements(case, key, tensor) for key, tensor in case.draw().items()}
    every = list(itertools.product(*kinds.values()))
    if len(every) > most:
        every = [one for one in every if sum(placement != Replicate() for placement in one) < 2] + random.Random(
            seed
        ).sample(every, most)
    for combination in every:
        check(name, mesh, {key: [one] for key, one in zip(kinds, combination, strict=True)})
    return len(every)


def try_two_dimensions(seed: int, count: int) -> int:
    """Random placements on a mesh of two dimensions."""
    mesh, draw = init_device_mesh("cpu", (2, 2)), random.Random(seed)
    for _ in range(count):
        name = draw.choice(list(CASES))
        case = CASES[name]
        kinds = {key: placements(case, key, tensor) for key, tensor in case.draw().items()}
        check(name, mesh, {key: [draw.choice(kind) for _ in range(2)] for key, kind in kinds.items()})
    return count
