"""Random convolutions of split sequences, compared on every rank with the unsplit call."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

import sluice
import sluice.distributed
from common import NAN, TOLERANCE, Layout, contiguous, permuted, sliced
from sluice import stages

LAYOUTS: list[Layout] = [contiguous, permuted, sliced]


class Found(NamedTuple):
    """A kind of call, and whether its result has the bits of the unsplit one."""

    kind: str
    is_equal: bool


def random_lengths(draw: random.Random, length: int, size: int) -> list[int]:
    """Pieces of random lengths, many of them short or empty."""
    kind = draw.choice(["even", "one long", "random", "random"])
    if kind == "even":
        return [length // size + (rank < length % size) for rank in range(size)]
    most = 3 if kind == "one long" else length
    cuts = sorted(min(draw.randrange(most + 1), length) for _ in range(size - 1))
    lengths = [b - a for a, b in itertools.pairwise([0, *cuts, length])]
    draw.shuffle(lengths)
    return lengths


def owned(lengths: Sequence[int], stride: int, outputs: int) -> list[tuple[int, int]]:
    """The outputs of each rank, counted one by one."""
    of_position = [rank for rank, length in enumerate(lengths) for _ in range(length)]
    of_output = [of_position[min(o * stride, len(of_position) - 1)] for o in range(outputs)]
    ends = list(itertools.accumulate(of_output.count(rank) for rank in range(len(lengths))))
    return list(itertools.pairwise([0, *ends]))


def part(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """What belongs to some positions; a tensor that broadcasts over them stays as it is."""
    return tensor[..., first:last] if tensor.dim() > 0 and tensor.shape[-1] > 1 else tensor


def part_of_chain(chain: sluice.Chain | None, first: int, last: int) -> sluice.Chain | None:
    if chain is None:
        return None

    def cut(value: Any) -> Any:
        return part(value, first, last) if isinstance(value, torch.Tensor) else value

    return sluice.Chain(tuple((name, tuple(map(cut, values))) for name, values in chain.stages))


def random_chain(draw: random.Random, shape: Sequence[int], device: str) -> sluice.Chain | None:
    kind = draw.choice(["none", "numbers", "tensor", "tensor"])
    if kind == "none":
        return None
    if kind == "numbers":
        return stages.scale(0.5) | stages.silu()
    sizes = [size if draw.random() < 0.6 else 1 for size in shape[draw.randrange(len(shape)) :]]
    operand = torch.randn(sizes, device=device)
    return stages.mul(operand) | stages.shift(0.25) | stages.add(operand)


def compare(result: torch.Tensor, whole: torch.Tensor, first: int, last: int, kind: str, what: object) -> Found:
    """A rank's result and that part of the unsplit one, which are both as near to the exact one as the op promises."""
    expected = whole[..., first:last]
    assert result.shape == expected.shape, (result.shape, expected.shape, what)
    assert result.dtype == expected.dtype, what
    if torch.equal(result, expected):
        return Found(kind, True)
    # A few results may all be small, so their size is that of the whole.
    size = whole.double().norm() * math.sqrt(expected.numel() / whole.numel())
    error = float((result.double() - expected.double()).norm() / size)
    assert error <= 2 * TOLERANCE[whole.dtype], (error, what)
    return Found(kind, False)


def ranks_of(members: Sequence[int] | None) -> Any:
    """The group of these members of the world, None for all; every rank calls."""
    return None if members is None else dist.new_group(list(members))


def random_convolutions(
    seed: int, count: int, members: Sequence[int] | None = None, device: str = "cpu"
) -> list[Found]:
    """`conv1d` of random splits."""
    return _drawn(_convolution, seed, count, members, device)


def _drawn(
    case: Callable[[random.Random, Any, str], Found], seed: int, count: int, members: Sequence[int] | None, device: str
) -> list[Found]:
    group = ranks_of(members)
    if members is not None and dist.get_rank() not in members:
        return []
    device = f"{device}:{dist.get_rank()}" if device == "cuda" else device
    return [case(random.Random(f"{seed} {n}"), group, device) for n in range(count)]


def _convolution(draw: random.Random, group: Any, device: str) -> Found:
    torch.manual_seed(draw.randrange(2**31))
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float64])
    is_depthwise, channels = draw.random() < 0.5, draw.choice([1, 2, 4, 6])
    groups = channels if is_depthwise else draw.choice([n for n in (1, 2) if channels % n == 0])
    outputs = channels if is_depthwise else groups * draw.randrange(1, 4)
    taps, dilation, stride = draw.randrange(1, 8), draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 1, 2, 3, 5])
    kind = "depthwise" if groups > 1 and is_depthwise else "dense"
    if draw.random() < 0.08:
        taps, kind = draw.randrange(64, 300), "long"  # some by Fourier transforms, whose segments are cut differently
    reach = (taps - 1) * dilation
    padding: Any = draw.choice([0, draw.randrange(reach + 4), "same" if stride == 1 else "valid"])
    length = reach + draw.choice([draw.randrange(1, 20), draw.randrange(1, 80)])
    lengths = random_lengths(draw, length, size)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(device, dtype)

    rows = () if draw.random() < 0.2 else (draw.choice([1, 2, 3]),)
    layout = draw.choice(LAYOUTS) if rows else contiguous
    x, weight = layout(values(*rows, channels, length)), values(outputs, channels // groups, taps)
    numbers = (values(outputs) if draw.random() < 0.7 else None, stride, padding, dilation, groups)
    plain = sluice.conv1d(x, weight, *numbers)
    chains = {"pre": random_chain(draw, x.shape, device), "post": random_chain(draw, plain.shape, device)}
    whole = sluice.conv1d(x, weight, *numbers, **chains)
    first, last = sum(lengths[:rank]), sum(lengths[: rank + 1])
    a, b = owned(lengths, stride, whole.shape[-1])[rank]
    given: dict[str, Any] = {
        "pre": part_of_chain(chains["pre"], first, last), "post": part_of_chain(chains["post"], a, b),
    }  # fmt: skip
    if draw.random() < 0.5:
        given["lengths"] = lengths
    if draw.random() < 0.3:
        given["out"] = layout(torch.full_like(whole[..., a:b], NAN))
    mine = x[..., first:last] if draw.random() < 0.5 else layout(x[..., first:last].contiguous())
    result = sluice.distributed.conv1d(mine, weight, *numbers, group=group, **given)
    assert "out" not in given or result is given["out"]
    what = (dtype, x.shape, weight.shape, numbers[1:], lengths, layout, chains)
    return compare(result, whole, a, b, kind, what)


def random_causal_convolutions(
    seed: int, count: int, members: Sequence[int] | None = None, device: str = "cpu"
) -> list[Found]:
    """`causal_conv1d` of random splits, with states, ids and packed sequences."""
    return _drawn(_causal_convolution, seed, count, members, device)


def random_ids(draw: random.Random, length: int) -> list[int]:
    """Ids of short runs, with padding between them and at the row's ends, where it may fill several pieces."""
    ids = [-1] * draw.choice([0, 0, draw.randint(0, length)])
    while len(ids) < length:
        ids += [draw.choice([-1, 0, 1, 2, 3])] * draw.randrange(1, 9)
    kept = length - draw.choice([0, 0, 0, draw.randint(0, length), length])
    return ids[:kept] + [-2] * (length - kept)


def random_sequences(draw: random.Random, kind: str, batch: int, length: int, device: str) -> dict[str, torch.Tensor]:
    """`seq_idx` or `cu_seqlens` of that many positions."""
    dtype = draw.choice([torch.int32, torch.int64])
    if kind == "packed":
        starts = sorted(draw.randrange(length + 1) for _ in range(draw.randrange(2, 6)))
        return {"cu_seqlens": torch.tensor(starts, dtype=dtype, device=device)}
    if kind == "ids":
        rows = [random_ids(draw, length) for _ in range(batch)]
        return {"seq_idx": torch.tensor(rows, dtype=dtype, device=device)}
    return {}


def _causal_convolution(draw: random.Random, group: Any, device: str) -> Found:
    torch.manual_seed(draw.randrange(2**31))
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float64])
    channels, taps, dilation = draw.choice([1, 2, 4, 5]), draw.randrange(1, 7), draw.choice([1, 1, 2])
    columns, length = (taps - 1) * dilation, draw.choice([draw.randrange(1, 12), draw.randrange(1, 60)])
    lengths = random_lengths(draw, length, size)
    kind = draw.choice(["rows", "ids", "ids", "packed"])
    batch, layout = 1 if kind == "packed" else draw.choice([1, 2, 3]), draw.choice(LAYOUTS)

    def values(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(device, dtype)

    x, weight = layout(values(batch, channels, length)), values(channels, taps).float()
    options: dict[str, Any] = random_sequences(draw, kind, batch, length, device)
    if kind == "ids":
        x.masked_fill_((options["seq_idx"] < 0)[:, None], NAN)
    options |= {"dilation": dilation, "activation": draw.choice([None, "silu"])}
    if draw.random() < 0.7:
        options["bias"] = values(channels)
    if kind != "packed" and draw.random() < 0.5:
        options["initial_states"] = values(batch, channels, columns)
    if draw.random() < 0.3:
        options["residual"] = values(batch, channels, length)
    for name in ("pre", "post"):
        options[name] = random_chain(draw, x.shape, device)
    wants_states = kind != "packed" and draw.random() < 0.5
    is_flat = kind == "packed" and options["pre"] is options["post"] is None and draw.random() < 0.5
    whole = sluice.causal_conv1d(x, weight, **options, return_final_states=wants_states)
    whole, states = whole if wants_states else (whole, None)
    first, last = sum(lengths[:rank]), sum(lengths[: rank + 1])
    given = {
        name: value[..., first:last] if name in ("seq_idx", "residual") else value for name, value in options.items()
    }
    for name in ("pre", "post"):
        given[name] = part_of_chain(options[name], first, last)
    is_broadcast = wants_states and draw.random() < 0.5
    if draw.random() < 0.5:
        given["lengths"] = sluice.distributed.gather_lengths(lengths[rank], group, device=device)
        assert list(given["lengths"]) == lengths
    mine = x[..., first:last]
    if draw.random() < 0.3:
        given["out"] = layout(torch.full_like(mine, NAN))
    if is_flat:
        mine, whole = mine[0], whole[0]
        given |= {"out": given["out"][0]} if "out" in given else {}
    result = sluice.distributed.causal_conv1d(
        mine, weight, group=group, return_final_states=wants_states, broadcast_final_states=is_broadcast, **given
    )
    result, found_states = result if wants_states else (result, None)
    assert "out" not in given or result is given["out"]
    what = (kind, dtype, x.shape, taps, lengths, layout, options)
    if wants_states and (is_broadcast or rank == size - 1):
        assert torch.equal(found_states, states), what
        assert found_states.is_contiguous()
    else:
        assert found_states is None
    return compare(result, whole, first, last, kind, what)
