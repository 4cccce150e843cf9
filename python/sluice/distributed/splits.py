"""How each raw op may be split over one dimension of a mesh: the DTensor rules as data.

A split names the dimension of every argument that is split; the others are replicated. Tensors of chains follow the
input (`pre`) or the result (`post`) wherever they do not broadcast. Rules see shapes, not tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .shapes import Described

Dims = int | tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class Split:
    """One way to split a call.

    Attributes:
        dims: the dimension of each split argument; of each tensor in a list.
        result: the split dimension of every result.
        units: parts of that dimension which must stay whole and be divided evenly, as groups; None if any cut will do.
        has_halo: whether ranks need positions of each other.
    """

    dims: dict[str, Dims] = dataclasses.field(default_factory=dict)
    result: int | None = None
    units: int | None = None
    has_halo: bool = False


REPLICATED = Split()
Values = Mapping[str, Any]


def _operands(values: Values, name: str, from_end: int) -> tuple[int | None, ...]:
    """The dimension of each tensor in a list that meets the `from_end`-th dimension from the end; None if broadcast."""
    return tuple(
        operand.rank + from_end if operand.rank >= -from_end and operand.shape[from_end] != 1 else None
        for operand in values.get(name) or ()
    )


def _chains(values: Values, from_end: int, *names: str) -> dict[str, Dims]:
    return {f"{name}_operands": _operands(values, f"{name}_operands", from_end) for name in names}


def _transform(values: Values) -> list[Split]:
    rank = values["input"].rank
    return [Split({"input": d, "operands": _operands(values, "operands", d - rank)}, d) for d in range(rank)]


def _convolution(values: Values, transposed: bool) -> list[Split]:
    x, weight, groups = values["input"], values["weight"], values.get("groups", 1)
    rank = x.rank
    channel = rank - 2
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    splits = []
    if rank == 3:
        splits.append(Split({"input": 0, **_chains(values, -3, "pre", "post")}, 0))
    if groups > 1:
        # Depthwise, equal dimensions are cut alike however they are cut.
        units = None if groups == x.shape[channel] == outputs else groups
        dims: dict[str, Dims] = {"input": channel, "weight": 0, "bias": 0, **_chains(values, -2, "pre", "post")}
        splits.append(Split(dims, channel, units))
    else:
        dims = {"weight": 1 if transposed else 0, "bias": 0, **_chains(values, -2, "post")}
        splits.append(Split(dims, channel))
    if not transposed:
        splits.append(Split({"input": rank - 1, **_chains(values, -1, "pre", "post")}, rank - 1, has_halo=True))
    return splits


def _conv1d(values: Values) -> list[Split]:
    return _convolution(values, False)


def _conv_transpose1d(values: Values) -> list[Split]:
    return _convolution(values, True)


def _filter2d(values: Values) -> list[Split]:
    image, kernel = values["image"], values["kernel"]
    is_shared = kernel.rank == (2 if values.get("row_kernel") is None else 1)
    splits = []
    for d in range(image.rank - 2):
        dims: dict[str, Dims] = {"image": d, **_chains(values, d - image.rank, "pre", "post")}
        if d == image.rank - 3 and not is_shared:
            dims |= {"kernel": 0, "row_kernel": 0, "bias": 0}
        splits.append(Split(dims, d))
    return splits


def _channels(values: Values, states: str | None) -> Split:
    """The split of a causal op's channels: x has them in dimension 1, as states have."""
    x = values["x"]
    dims: dict[str, Dims] = {"x": 1, "weight": 0, "bias": 0, **_chains(values, 1 - x.rank, "pre", "post")}
    return Split(dims if states is None else {**dims, states: 1}, 1)


def _batch(values: Values, *others: str) -> Split:
    """The split of a causal op's rows: the `others` have a row for each of x's rows."""
    dims: dict[str, Dims] = {"x": 0, **dict.fromkeys(others, 0), **_chains(values, -values["x"].rank, "pre", "post")}
    return Split(dims, 0)


def _causal_conv1d(values: Values) -> list[Split]:
    positions = Split({"x": 2, **_chains(values, -1, "pre", "post")}, 2, has_halo=True)
    return [_batch(values, "initial_states"), _channels(values, "initial_states"), positions]


def _final_states(values: Values) -> list[Split]:
    return [Split({"x": d, "initial_states": d}, d) for d in (0, 1)]


def _sequences(values: Values) -> list[Split]:
    batch = [_batch(values, "initial_states", "seq_idx")] if values.get("cu_seqlens") is None else []
    return [*batch, _channels(values, "initial_states")]


def _paged(values: Values) -> list[Split]:
    has_rows = values.get("cu_seqlens") is None and values.get("cache_indices") is None
    batch = [_batch(values, "state_cache", "seq_idx", "has_initial_state")] if has_rows else []
    return [*batch, _channels(values, "state_cache")]


def _update(values: Values) -> list[Split]:
    has_rows = values.get("query_start_loc") is None and values.get("conv_state_indices") is None
    batch = [_batch(values, "conv_state", "cache_seqlens", "num_accepted_tokens")] if has_rows else []
    return [*batch, _channels(values, "conv_state")]


def _chunk(values: Values) -> list[Split]:
    outputs = values["weight"].shape[0]
    # Every rank writes the whole cache, equally: none may be without outputs.
    dense = Split({"weight": 0, "bias": 0, **_chains(values, -2, "post")}, 1, units=outputs)
    return _of_chunk(values, "state_cache", outputs, dense)


def _transposed_chunk(values: Values) -> list[Split]:
    outputs = values["weight"].shape[1] * values.get("groups", 1)
    dense = Split({"weight": 1, "bias": 0, "overlap_cache": 1, **_chains(values, -2, "post")}, 1)
    return _of_chunk(values, "overlap_cache", outputs, dense)


def _of_chunk(values: Values, cache: str, outputs: int, dense: Split) -> list[Split]:
    """The splits of a chunk's rows, and of its groups, or of the output channels of one group: `dense`."""
    has_rows = values.get("cache_indices") is None
    splits = [_batch(values, cache, "has_initial_state")] if has_rows else []
    groups = values.get("groups", 1)
    if groups == 1:
        return [*splits, dense]
    units = None if groups == values["x"].shape[1] == outputs else groups
    return [*splits, dataclasses.replace(_channels(values, cache), units=units)]


def _nothing(values: Values) -> list[Split]:
    return []


RULES: dict[str, Callable[[Values], list[Split]]] = {
    "transform": _transform,
    "transform_many": _transform,
    "conv1d": _conv1d,
    "conv_transpose1d": _conv_transpose1d,
    "filter2d": _filter2d,
    "causal_conv1d": _causal_conv1d,
    "causal_conv1d_final_states": _final_states,
    "causal_conv1d_sequences": _sequences,
    "causal_conv1d_paged": _paged,
    "causal_conv1d_update": _update,
    "causal_conv1d_chunk": _chunk,
    "causal_conv_transpose1d_chunk": _transposed_chunk,
    "_pack_conv1d_weight": _nothing,
}


def dimension_of(split: Split, name: str, index: int | None) -> int | None:
    """The dimension along which an argument, or a tensor in a list, is split; None if it is replicated."""
    dims = split.dims.get(name)
    return dims[index or 0] if isinstance(dims, tuple) else dims


def tensors_of(values: Values) -> list[tuple[str, int | None, Described]]:
    """The tensors among a call's arguments: name, index in a list, tensor."""
    found: list[tuple[str, int | None, Described]] = []
    for name, value in values.items():
        if isinstance(value, Described):
            found.append((name, None, value))
        elif isinstance(value, tuple):
            found += [(name, k, one) for k, one in enumerate(value) if isinstance(one, Described)]
    return found
