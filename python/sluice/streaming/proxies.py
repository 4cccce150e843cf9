"""Tensors without values that record writes in place, which torch.fx's own lose, and a guard of tensors with values.

torch.fx records `x += y` as `x + y`, sees no assignment to an attribute such as `x.data`, and reads a tensor with
values when the graph runs, so that a write to it during the trace would be seen by what read it before.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .values import NoStreamError

_OPERATORS = (
    "iadd", "iand", "ifloordiv", "ilshift", "imod", "imul", "ior", "ipow", "irshift", "isub", "itruediv", "ixor",
)  # fmt: skip
# Names of writes, with names of what they compute.
IN_PLACE = {
    **{name: name[1:] for name in _OPERATORS},
    **{f"__{name}__": name[1:] for name in _OPERATORS},
    "__setitem__": "setitem",
    "setitem": "setitem",
    "setattr": "setattr",
}


def _recorded(name: str) -> Callable[[Any, Any], Any]:
    """Python's operator as a function: for operator's own, torch.fx writes `n -= 1`, which changes an int's name."""
    act = getattr(operator, name)

    def change(target: Any, value: Any) -> Any:
        return act(target, value)

    change.__name__ = change.__qualname__ = name
    return change


class Proxy(torch.fx.Proxy):
    """A tensor without values, or a number of its shape, that records writes beside torch.fx's ops."""

    def __getattr__(self, name: str) -> ProxyAttribute:
        return ProxyAttribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("tracer", "node", "root", "attr", "_node"):
            object.__setattr__(self, name, value)
        else:
            self.tracer.create_proxy("call_function", setattr, (self, name, value), {})

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})


class ProxyAttribute(Proxy, torch.fx.proxy.Attribute):
    """An attribute or a method of a tensor without values."""


def _method(name: str) -> Callable[[Proxy, Any], torch.fx.Proxy]:
    change = _recorded(name)
    return lambda self, value: self.tracer.create_proxy("call_function", change, (self, value), {})


for _name in _OPERATORS:
    setattr(Proxy, f"__{_name}__", _method(_name))


def is_write(target: Any) -> bool:
    """Whether a function, or a method of the name, may change an argument."""
    if isinstance(target, torch._ops.OpOverloadPacket):
        return any(getattr(target, name)._schema.is_mutable for name in target.overloads())
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.is_mutable
    name = str(target if isinstance(target, str) else getattr(target, "__name__", ""))
    return name in IN_PLACE or (name.endswith("_") and not name.startswith("__"))


def is_foreign(target: Any) -> bool:
    """Whether it is a function of others that torch.fx.wrap keeps, which may do anything."""
    module = str(getattr(target, "__module__", "")).partition(".")[0]
    return isinstance(target, types.FunctionType) and module not in ("torch", __name__.partition(".")[0])


class Guard(TorchFunctionMode):
    """Raises before a forward changes a tensor with values that is the model's, or that the graph reads."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._names: dict[Any, str] = {}
        for path, module in model.named_modules():
            for name, value in [*module._parameters.items(), *module._buffers.items(), *vars(module).items()]:
                if isinstance(value, torch.Tensor):
                    self._names[memory_of(value)] = f"{path}.{name}".removeprefix(".")

    def add(self, tensor: torch.Tensor) -> None:
        """From now on the graph reads the tensor."""
        self._names.setdefault(memory_of(tensor), "")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = kwargs.get("out")
        if out is None and (is_write(func) or kwargs.get("inplace") or getattr(func, "__name__", "") == "__set__"):
            out = args[0] if args else next(iter(kwargs.values()))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor) and (name := self._names.get(memory_of(tensor))) is not None:
                what = f"{name!r} in place" if name else "a tensor in place that it has read"
                raise NoStreamError(f"changes {what}")
        return func(*args, **kwargs)


def memory_of(tensor: torch.Tensor) -> Any:
    """A key of the tensor's memory, which views of it have as well."""
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # sparse tensors, and wrappers of others
        return -id(tensor)
