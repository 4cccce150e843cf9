"""The caller of the raw ops: `torch.ops.sluice.<op>`, or its out variant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ._autograd import check_out
from ._errors import checked, raise_as_python, raise_no_kernel
from ._modes import ask, current_mode

_is_grad_enabled, _is_any_autocast_enabled = torch.is_grad_enabled, torch._C._is_any_autocast_enabled
# By name; torch.ops takes 0.3 us to find an op, and its overload 0.1 us to call what it has.
_functions: dict[str, Callable[..., torch.Tensor]] = {}


def is_plain_call(*tensors: torch.Tensor | None) -> bool:
    """Whether a call with these tensors is neither traced, planned, differentiated nor cast."""
    if is_compiling() or current_mode.action or forward_ad._current_level >= 0 or _is_any_autocast_enabled():
        return False
    if _is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return False
    return True


def run(
    op: str,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    out: torch.Tensor | None = None,
    *,
    raw: str | None = None,
    argument: str = "out",
    is_plain: bool = False,
) -> torch.Tensor:
    """The result of `torch.ops.sluice.<op>`, a tensor or several, or `out`, which its out variant has written.

    Args:
        op: for messages, and the raw op's name unless `raw` is given.
        arguments: the raw op's positional arguments, a tensor first.
        options: its keyword arguments.
        out: written and returned as that object.
        raw: the raw op's name.
        argument: how messages call `out`.
        is_plain: `is_plain_call()`, where the caller knows it.
    """
    name = raw or op
    if out is not None:
        target = out_target(op, out, argument)
        run(op, arguments, {**options, "out": target}, raw=name + "_out")
        return out_result(out, target)
    if not is_plain and is_compiling():  # traced code has the op as it is
        if has_mesh(arguments[0]):
            load_sharding_rules()
        result: torch.Tensor = getattr(torch.ops.sluice, name)(*arguments, **options)
        return result
    try:
        if not is_plain and current_mode.action:
            return ask(name, arguments, options)
        return (_functions.get(name) or _function(name))(*arguments, **options)
    except NotImplementedError as error:
        raise_no_kernel(op, error, arguments[0].device)
        if not has_mesh(arguments[0]):
            raise
    except RuntimeError as error:
        raise_as_python(op, error, arguments[0].device)
    load_sharding_rules()
    if current_mode.action:
        return checked(op, arguments[0], ask, name, arguments, options)
    return checked(op, arguments[0], _functions[name], *arguments, **options)


def _function(name: str) -> Callable[..., torch.Tensor]:
    found: Callable[..., torch.Tensor] = getattr(torch.ops.sluice, name).default._op
    return _functions.setdefault(name, found)


def out_target(op: str, out: torch.Tensor, argument: str = "out") -> torch.Tensor:
    """The tensor that an out variant writes: `out`, or memory for the values of a lazily negated `out`."""
    check_out(op, argument, out)
    return torch.empty_like(out) if is_negated(out) else out


def out_result(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """`out`, after its target has been written."""
    if target is not out and not current_mode.action:
        out.copy_(target)
    return out


def is_negated(value: object) -> bool:
    """Whether it is a lazily negated tensor, which torch passes to an op as a copy; never in traced code."""
    return isinstance(value, torch.Tensor) and not torch.compiler.is_dynamo_compiling() and value.is_neg()


def with_its_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or for a lazily negated one its memory as it is."""
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


# The package adds what registers them, because the rules are above the ops.
sharding_rules: list[Callable[[], object]] = []


def has_mesh(tensor: object) -> bool:
    """Whether it is a DTensor, whose module takes a second to import."""
    return hasattr(tensor, "device_mesh")


def load_sharding_rules() -> None:
    """Registers sluice's rules for DTensors. Traced code may call it."""
    for load in sharding_rules:
        load()
