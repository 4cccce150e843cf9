"""torch.vmap: batching rules for the raw ops.

A mapped input goes into the batch. A mapped weight of a convolution goes into its groups; each is summed as
before. Other mapped arguments run the op in a loop over the mapped dimension.

torch.library.register_vmap takes no ops with tensors in keyword arguments, which chains have, so this module registers
kernels at the same key. A kernel runs only if a tensor outside of the op's lists is mapped: torch does not look into
lists when it dispatches, and _apply.py refuses a call in which only a chain's tensors are mapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_KEY = "FuncTorchBatched"
_EXCLUDED = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchBatched)
_library = torch.library.Library("sluice", "IMPL")


class Call:
    """A call of an op: its arguments by name, and their mapped dimensions by name.

    Lists of tensors have lists of dimensions.
    """

    def __init__(self, op: Any, size: int, values: dict[str, Any], dims: dict[str, Any]) -> None:
        self.op = op
        self.size = size
        self.values = values
        self.dims = dims

    def __call__(self, **changed: Any) -> Any:
        """Calls the op with some of the arguments changed."""
        return self.op(**{**self.values, **changed})

    def is_mapped(self, *names: str) -> bool:
        """Whether one of these arguments, or a tensor in one, is mapped."""
        return any(_is_mapped(self.dims.get(name)) for name in names)

    def front(self, name: str) -> torch.Tensor:
        """An argument with the mapped dimension in front, expanded if it is not mapped."""
        return _front(self.values[name], self.dims[name], self.size)

    def rank(self, name: str) -> int:
        """The dimensions of an argument for one element of the mapped dimension."""
        rank: int = self.values[name].dim() - (self.dims[name] is not None)
        return rank

    def operands(self, rank: int, batch: int | None = None) -> dict[str, Any]:
        """The tensors of chains, to broadcast after the mapped dimension to results of `rank` dimensions.

        Args:
            rank: that of the results for one element of the mapped dimension.
            batch: the size of their first dimension, if it is merged with the mapped one.
        """
        found: dict[str, Any] = {}
        for name in ("operands", "pre_operands", "post_operands"):
            if self.values.get(name):
                pairs = zip(self.values[name], self.dims[name], strict=True)
                found[name] = [_operand(value, dim, self.size, rank, batch) for value, dim in pairs]
        return found


def _is_mapped(dims: Any) -> bool:
    return any(map(_is_mapped, dims)) if isinstance(dims, list) else dims is not None


def _front(value: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    return value.unsqueeze(0).expand(size, *value.shape) if dim is None else value.movedim(dim, 0)


def _operand(value: torch.Tensor, dim: int | None, size: int, rank: int, batch: int | None) -> torch.Tensor:
    own = value.dim() - (dim is not None)
    if dim is None and (batch is None or own < rank or value.shape[0] == 1):
        return value
    value = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
    value = value.reshape(value.shape[0], *(1,) * (rank - own), *value.shape[1:])
    return value if batch is None else value.expand(size, batch, *value.shape[2:]).flatten(0, 1)


# --- rules: each has the mapped dimension in front of its results -----------------------------------------------------
def _loop(call: Call) -> Any:
    """Each element of the mapped dimension by itself. The op writes through views."""
    for argument in call.op._schema.arguments:
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if is_written and call.values.get(argument.name) is not None and not call.is_mapped(argument.name):
            name = call.op._schema.name.removeprefix("sluice::").removesuffix("_out")
            raise ValueError(f"{name}: {argument.name} must be mapped by torch.vmap, because mapped values are "
                             "written to it, got one that is not")  # fmt: skip
    results = [
        call(**{name: _element(value, call.dims[name], n) for name, value in call.values.items()})
        for n in range(call.size)
    ]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return None if results[0] is None else [torch.stack(parts) for parts in zip(*results, strict=True)]


def _element(value: Any, dim: Any, n: int) -> Any:
    if isinstance(dim, list):
        return [_element(one, place, n) for one, place in zip(value, dim, strict=True)]
    return value if dim is None else value.select(dim, n)


def _transform(call: Call) -> Any:
    return call(input=call.front("input"), **call.operands(call.rank("input")))


def _filter2d(call: Call) -> Any:
    rank = call.rank("image")
    if rank < 2 or call.is_mapped("kernel", "row_kernel", "bias"):
        return _loop(call)
    return call(image=call.front("image"), **call.operands(rank))


def _convolution(call: Call) -> Any:
    if call.rank("input") not in (2, 3):
        return _loop(call)  # which the op refuses
    if call.is_mapped("weight", "bias"):
        has_operands = call.values.get("pre_operands") or call.values.get("post_operands")
        return _loop(call) if has_operands else _in_groups(call)
    x = call.front("input")
    batch = 1 if x.dim() == 3 else x.shape[1]
    result = call(input=x.flatten(0, -3), **call.operands(3, batch))
    return result if x.dim() == 3 else result.unflatten(0, (call.size, batch))


def _in_groups(call: Call) -> Any:
    """`call.size` convolutions as the groups of one."""
    x, weight = call.front("input"), call.front("weight")
    changed: dict[str, Any] = {"weight": weight.flatten(0, 1), "groups": call.values.get("groups", 1) * call.size}
    if call.values.get("bias") is not None:
        changed["bias"] = call.front("bias").flatten(0, 1)
    if "packed" in call.values:
        changed["packed"] = None  # another weight's
    result = call(input=x.movedim(0, -3).flatten(-3, -2), **changed)
    return result.unflatten(-2, (call.size, -1)).movedim(-3, 0)


def _causal(call: Call) -> Any:
    """Ops on (batch, channels, length) whose other tensors may have a row for each of the batch."""
    if call.rank("x") != 3 or call.is_mapped("weight", "bias"):
        return _loop(call)
    x = call.front("x")
    changed: dict[str, Any] = call.operands(3, x.shape[1])
    if call.values.get("initial_states") is not None:
        changed["initial_states"] = call.front("initial_states").flatten(0, 1)
    return call(x=x.flatten(0, 1), **changed).unflatten(0, (call.size, x.shape[1]))


RULES: dict[str, Callable[[Call], Any]] = {
    "transform": _transform,
    "transform_many": _transform,
    "conv1d": _convolution,
    "conv_transpose1d": _convolution,
    "filter2d": _filter2d,
    "causal_conv1d": _causal,
    "causal_conv1d_final_states": _causal,
    "causal_conv1d_sequences": _loop,
    "causal_conv1d_paged": _loop,
    "causal_conv1d_update": _loop,
    "causal_conv1d_chunk": _loop,
    "causal_conv_transpose1d_chunk": _loop,
}


# --- kernels ----------------------------------------------------------------------------------------------------------
def _unwrapped(value: Any, level: int) -> tuple[Any, Any]:
    """A value below a level of vmap, and its mapped dimension there."""
    if isinstance(value, torch.Tensor):
        return torch._C._functorch._unwrap_batched(value, level)  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in value):
        pairs = [_unwrapped(one, level) for one in value]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return value, None


def _wrapped(result: Any, level: int) -> Any:
    if isinstance(result, list):
        return [_wrapped(one, level) for one in result]
    return None if result is None else torch._C._functorch._add_batch_dim(result, 0, level)


def _register(name: str, rule: Callable[[Call], Any]) -> None:
    op = getattr(torch.ops.sluice, name).default
    names = [argument.name for argument in op._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter

        interpreter = retrieve_current_functorch_interpreter()
        assert isinstance(interpreter, VmapInterpreter)
        level = interpreter.level()
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        pairs = {key: _unwrapped(value, level) for key, value in given.items()}
        values, dims = ({key: pair[i] for key, pair in pairs.items()} for i in (0, 1))
        call = Call(op, interpreter.batch_size(), values, dims)
        with torch._C._ExcludeDispatchKeyGuard(_EXCLUDED):
            if not call.is_mapped(*names):
                return call()
            result = rule(call)
        return _wrapped(result, level)

    _library.impl(name, kernel, _KEY)


for _name, _rule in RULES.items():
    _register(_name, _rule)
    _register(_name + "_out", _loop)
