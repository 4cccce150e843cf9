"""DTensor: every raw op runs on local tensors, split as splits.py allows; what fits no split is redistributed.

torch.distributed.tensor.experimental.register_sharding sees no tensors in lists and redistributes no keyword
arguments, which chains have, so this module registers torch-dispatch rules and redistributes by DTensor's methods.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.distributed.tensor import empty as empty_dtensor

from .._fake import dtype_name, empty_like_layout, require
from .choosing import Argument, choose, placement_for
from .sequences import run_piece
from .shapes import Described, Frozen, freeze, raw_results_of
from .splits import RULES, Split, tensors_of

_OUTS = ("out", "final_states_out")
_CHECKED = (
    "causal_conv1d_sequences",
    "causal_conv1d_paged",
    "causal_conv1d_final_states_out",
    "causal_conv1d_chunk",
    "causal_conv_transpose1d_chunk",
)
_SUFFIXES = ("_many", "_final_states", "_sequences", "_paged", "_chunk")


class Call:
    """A call of a raw op, some of whose tensors are DTensors.

    Attributes:
        base: the raw op's name without "_out".
        op: the public op's, for messages.
        values: the given arguments by name.
        tensors: the tensors among them: name, index in a list, tensor.
        written: the names of arguments that the op writes.
        outs: the written arguments that are results.
        mesh: of the DTensors.
    """

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        schema = func._schema
        self.func = func
        self.base = schema.name.removeprefix("sluice::").removesuffix("_out")
        self.op = public_name(self.base)
        names = [argument.name for argument in schema.arguments]
        self.values = {**dict(zip(names, args, strict=False)), **kwargs}
        self.tensors = [
            (name, index, self.values[name] if index is None else self.values[name][index])
            for name, index, _ in tensors_of(dict(freeze(self.values)))
        ]
        self.written = frozenset(one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write)
        self.outs = tuple(name for name in _OUTS if name in self.written and self.values.get(name) is not None)
        self.mesh: DeviceMesh = next(one.device_mesh for _, _, one in self.tensors if isinstance(one, DTensor))

    def run(self) -> Any:
        """The results as DTensors."""
        self._check()
        results, splits = self._decided()
        local = _Local(self, splits)
        computed = local.run(results)
        local.write_back()
        if computed is None:
            return None
        wrapped = [
            DTensor.from_local(
                one, self.mesh, local.placements, run_check=False, shape=torch.Size(whole.shape), stride=whole.stride
            )
            for one, whole in zip(computed, results, strict=True)
        ]
        return wrapped if isinstance(self.func._schema.returns[0].type, torch.ListType) else wrapped[0]

    def _check(self) -> None:
        """Refuses tensors on other meshes, mixed tensors, and partial tensors that the op writes."""
        is_lenient = DTensor._op_dispatcher._allow_implicit_replication
        for name, _, tensor in self.tensors:
            if not isinstance(tensor, DTensor):
                words = functools.partial(
                    "{} must be a DTensor when another argument is one, got a {} of shape {}".format,
                    name, type(tensor).__name__, tuple(tensor.shape),
                )  # fmt: skip
                require(self.op, name not in self.written and (is_lenient or tensor.numel() == 1), words)
                continue
            mesh = tensor.device_mesh
            words = functools.partial("{} must be on the other DTensors' mesh {}, got {}".format, name, self.mesh, mesh)
            require(self.op, mesh is self.mesh or mesh == self.mesh, words)
            placements = tensor.placements
            words = functools.partial("{} must be replicated or sharded to be written, got {}".format, name, placements)
            require(self.op, name not in self.written or all(map(_is_whole, placements)), words)

    def _decided(self) -> tuple[tuple[Described, ...], tuple[Split, ...]]:
        """What the whole results are, and the split over each dimension of the mesh."""
        is_compiling = torch.compiler.is_compiling()
        may_exchange = not is_compiling and all(_has_memory(tensor) for _, _, tensor in self.tensors)
        placements = tuple(one.placements if isinstance(one, DTensor) else None for _, _, one in self.tensors)
        given = self.base, freeze(self.values), placements, self.mesh, self.written, self.outs, may_exchange
        return _decide(*given) if is_compiling else _remembered(*given)  # traced sizes may be symbolic


def _decide(
    base: str,
    arguments: Frozen,
    placements: tuple[tuple[Placement, ...] | None, ...],
    mesh: DeviceMesh,
    written: frozenset[str],
    outs: tuple[str, ...],
    may_exchange: bool,
) -> tuple[tuple[Described, ...], tuple[Split, ...]]:
    """Raises what the op refuses, by the whole shapes."""
    values = dict(arguments)
    tensors = tensors_of(values)
    read = {name: value for name, value in values.items() if name not in _OUTS}
    if "final_states_out" in values and "return_final_states" not in values:
        read["return_final_states"] = values["final_states_out"] is not None
    results = raw_results_of(base, tuple(read.items()))
    op, given = public_name(base), [(name, one) for out in _OUTS for name, _, one in tensors if name == out]
    for (name, found), result in zip(given, results, strict=False):
        words = functools.partial("{} must have shape {}, got {}".format, name, result.shape, found.shape)
        require(op, found.shape == result.shape, words)
        kinds = dtype_name(result.dtype), dtype_name(found.dtype)
        require(
            op, found.dtype == result.dtype, functools.partial("{} must have dtype {}, got {}".format, name, *kinds)
        )
    split = [
        Argument(name, index, tensor, where)
        for (name, index, tensor), where in zip(tensors, placements, strict=True)
        if where is not None
    ]
    return results, choose(mesh, split, RULES[base](values), written, outs, may_exchange)


_remembered = functools.lru_cache(maxsize=1024)(_decide)


def public_name(base: str) -> str:
    """The name of the op that users call a raw op by."""
    for suffix in _SUFFIXES:
        base = base.removesuffix(suffix)
    return base.removeprefix("_").removesuffix("_conv1d_weight") if base.startswith("_pack") else base


def _is_whole(placement: Placement) -> bool:
    return isinstance(placement, Replicate) or type(placement) is Shard


def _has_memory(tensor: torch.Tensor) -> bool:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return type(local) in (torch.Tensor, torch.nn.Parameter)


class _Local:
    """A call's arguments on this rank, redistributed as its splits want them.

    Attributes:
        placements: every result has these.
        has_share: whether this rank has anything to compute.
    """

    def __init__(self, call: Call, splits: tuple[Split, ...]) -> None:
        self.call = call
        self.splits = splits
        self.placements = [placement_for(split, "out", None, ("out",)) for split in splits]
        self.has_share = call.mesh.get_coordinate() is not None
        self.values: dict[str, Any] = {
            name: list(value) if isinstance(value, (list, tuple)) else value for name, value in call.values.items()
        }
        # Written arguments whose placement is not the call's: the tensor, that placement, and the memory written.
        self._moved: list[tuple[DTensor, list[Placement], torch.Tensor]] = []
        for name, index, tensor in call.tensors:
            if not isinstance(tensor, DTensor):
                continue
            if index is None:
                self.values[name] = self._placed(name, index, tensor)
            else:
                self.values[name][index] = self._placed(name, index, tensor)

    def _placed(self, name: str, index: int | None, tensor: DTensor) -> torch.Tensor:
        call = self.call
        wanted = [placement_for(split, name, index, call.outs) for split in self.splits]
        is_moved = list(tensor.placements) != wanted
        if not is_moved:
            local = tensor.to_local()
        elif name in call.outs:
            local = self._empty(tensor.shape, tensor.dtype, wanted)
        else:
            local = tensor.redistribute(placements=wanted).to_local()
        if is_moved and name in call.written:
            self._moved.append((tensor, wanted, local))
        if self.has_share and not any(split.has_halo for split in self.splits):
            cut = [placement.dim for placement in wanted if isinstance(placement, Shard)]
            self.has_share = all(local.shape[dim] > 0 or tensor.shape[dim] == 0 for dim in cut)
        return local

    def run(self, results: tuple[Described, ...]) -> list[torch.Tensor] | None:
        """The local results; None for an op that writes them into its arguments."""
        call, values = self.call, self.values
        is_out = not call.func._schema.returns
        if not self.has_share:
            return None if is_out else [self._empty(one.shape, one.dtype, self.placements) for one in results]
        self._adapt()
        halo = next((dim for dim, split in enumerate(self.splits) if split.has_halo), None)
        if halo is None:
            found = call.func(**values)
            return None if is_out else [found] if isinstance(found, torch.Tensor) else list(found)
        (result,), name = results, "input" if "input" in values else "x"
        out = values.pop("out", None)
        if out is None:
            shape = self._empty(result.shape, result.dtype, self.placements).shape
            out = empty_like_layout(values[name], shape, result.dtype)
        length = call.values[name].shape[-1]
        run_piece(call.base, values, length, result.shape[-1], out, call.mesh.get_group(halo))
        return None if is_out else [out]

    def _adapt(self) -> None:
        """Changes arguments that say how large a whole tensor is."""
        values = self.values
        if values.get("groups", 1) > 1:
            name = "input" if "input" in values else "x"
            values["groups"] = values[name].shape[-2] * values["groups"] // self.call.values[name].shape[-2]
        if values.get("packed") is not None and any(split.dims.get("weight") is not None for split in self.splits):
            values["packed"] = None  # packed from the whole weight

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype, placements: list[Placement]) -> torch.Tensor:
        return empty_dtensor(shape, dtype=dtype, device_mesh=self.call.mesh, placements=placements).to_local()

    def write_back(self) -> None:
        """Brings what was written in another placement to its tensor."""
        for tensor, placements, local in self._moved:
            written = DTensor.from_local(
                local, self.call.mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
            )
            tensor.to_local().copy_(written.redistribute(placements=tensor.placements).to_local())


def _compute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return Call(func, args, kwargs).run()


def _check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """For ops that only check: the whole shapes are checked."""
    names = [argument.name for argument in func._schema.arguments]
    values = {**dict(zip(names, args, strict=False)), **kwargs}
    raw_results_of(func._schema.name.removeprefix("sluice::"), freeze(values))


def _compare(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """For ops that compare addresses: compares the addresses of local tensors."""
    return func(*(one.to_local() if isinstance(one, DTensor) else one for one in args), **kwargs)


def register() -> None:
    """Registers the rules of all raw ops."""
    rules: dict[str, Callable[..., Any]] = {name: _compute for base in RULES for name in (base, f"{base}_out")}
    rules |= dict.fromkeys((f"_check_{name}" for name in _CHECKED), _check)
    rules |= dict.fromkeys(("_overlap", "_overlaps_itself"), _compare)
    for name, rule in rules.items():
        if hasattr(torch.ops.sluice, name):
            torch.library.register_torch_dispatch(f"sluice::{name}", DTensor, _with_arguments_of(rule))


def _with_arguments_of(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the arguments that torch passes."""

    def dispatch(_: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return rule(func, args, kwargs or {})

    return dispatch
