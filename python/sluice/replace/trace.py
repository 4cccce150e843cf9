"""Tracing a module's forward with its children as leaves, once for each way that shapes may take it.

A trace is refused if a later call of forward could differ from it: forward has effects, reads values or the state of
the process, or makes its own tensors. The module's attributes that it reads are recorded (observe.py), and each call
compares them.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from .observe import CHECKPOINTING, Observed, Refused, is_library

MOST_TRACES = 8


class _Asked:
    """Refuses questions of forward that a traced value would answer wrongly."""

    @property
    def __class__(self) -> type:
        observed = object.__getattribute__(self, "tracer").observed
        if not is_library(sys._getframe(1).f_code) and not observed.is_in_torch:
            raise Refused("forward reads the class of a value")
        return type(self)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise Refused("forward sets the class of a value")

    def __getattr__(self, name: str) -> Any:
        if not hasattr(torch.Tensor, name) and not hasattr(torch.Size, name):
            raise Refused(f"forward reads {name} of a value")
        return _Attribute(self, name)  # type: ignore[arg-type]


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    """Records `value += other` and the like as in place: torch.fx would record that they make a new tensor."""
    function = getattr(operator, name)

    def method(self: Any, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return method


def _rounded(name: str) -> Callable[[Any], Any]:
    """`math.ceil(value)` or `math.floor(value)`, which look the method up in the value's class."""
    function = getattr(math, name)

    def method(self: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self,), {})

    return method


for _name in ("ceil", "floor"):
    setattr(_Asked, f"__{_name}__", _rounded(_name))
for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor"):
    setattr(_Asked, f"__{_name}__", _in_place(_name))


class _Value(_Asked, fx.Proxy):
    pass


class _Attribute(_Asked, fx.proxy.Attribute):
    pass


class _TensorsOfForward(TorchFunctionMode):
    """Refuses torch calls that take no traced value: their results would become constants."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found: list[fx.Node] = []
        everything = (args, kwargs or {})
        fx.node.map_aggregate(everything, lambda a: found.append(a.node) if isinstance(a, fx.Proxy) else None)  # type: ignore[arg-type]
        if not found:
            raise Refused(f"forward calls {getattr(func, '__name__', func)} on tensors of its own")
        return func(*args, **(kwargs or {}))


class Trace(fx.Tracer):
    """One trace: the graph, its conditions on shapes, and the attributes that were read.

    Args:
        root: the module; its children are leaves.
        forward: the function to trace, of `root` and its arguments.
        arguments: a constant, or `VALUE` for a tensor, by name.
        answers: for the first conditions; later ones get True.
    """

    def __init__(
        self, root: torch.nn.Module, forward: Callable[..., Any], arguments: dict[str, Any], answers: list[bool]
    ) -> None:
        super().__init__(autowrap_modules=())  # type: ignore[arg-type]
        self.proxy_buffer_attributes = True
        self.forward, self.arguments = forward, arguments
        self.answers = list(answers)
        self.conditions: list[fx.Node] = []
        self.observed = Observed()
        self.reason = ""
        self._known: dict[fx.Node, bool] = {}
        before = {name: (value, _copied(value)) for name, value in root.__dict__.items()}
        try:
            self.trace(root)
        except Exception as error:
            self.reason = str(error) if isinstance(error, Refused) else f"forward cannot be traced: {_first(error)}"
        finally:
            if _restore(root, before) and not self.reason:
                self.reason = "forward changes attributes"

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """Placeholders in the order of the arguments."""
        given = {
            name: self.create_proxy("placeholder", name, (), {}) if value is VALUE else value
            for name, value in self.arguments.items()
        }
        signature = inspect.signature(self.forward)
        bound = inspect.BoundArguments(signature, {next(iter(signature.parameters)): self.root, **given})  # type: ignore[arg-type]

        def run() -> Any:
            with self.observed.watching(), _TensorsOfForward():
                result = self.forward(*bound.args, **bound.kwargs)
            _check_result(result)
            return result

        return run, []

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """The value of a node."""
        return _Value(node, self)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        """Whether fx keeps a module as one node: true for every child."""
        return True

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Refuses children that compute something around their forward: the graph would compute it twice."""
        for kind in type(m).__mro__:
            if kind is torch.nn.Module:
                break
            if "__call__" in kind.__dict__ and (kind.__module__, kind.__name__) != CHECKPOINTING:
                raise Refused(f"{type(m).__name__} has a __call__ of its own")
        return super().call_module(m, forward, args, kwargs)

    def create_arg(self, a: Any) -> Any:
        """Refuses tensors that are not parameters or buffers of the module."""
        if isinstance(a, torch.Tensor) and not isinstance(a, (fx.Proxy, torch.nn.Parameter)):
            raise Refused("forward uses a tensor that is neither a parameter nor a buffer")
        return super().create_arg(a)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """The answer of this trace to a condition."""
        node = obj.node
        if node not in self._known:
            position = len(self.conditions)
            self.conditions.append(node)
            if position == len(self.answers):
                self.answers.append(True)
            self._known[node] = self.answers[position]
        return self._known[node]

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The parts of an unpacked value, by fx's own reading of the code; other loops are refused."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and is_library(frame.f_code):
            frame = frame.f_back
        parts = None if frame is None else _unpacked(frame)
        if parts is None:
            raise Refused("forward loops over a value")
        return iter([obj[i] for i in range(parts)])  # type: ignore[index]


def _check_result(result: Any) -> None:
    """Refuses results whose class the graph would lose, such as dataclasses."""
    kind = type(result)
    if kind in (tuple, list):
        for one in result:
            _check_result(one)
    elif kind is dict and all(type(key) is str for key in result):
        _check_result(list(result.values()))
    elif not issubclass(kind, fx.Proxy) and kind not in (bool, int, float, str, type(None)):
        raise Refused(f"forward returns {kind.__name__}")


class _Sentinel:
    def __repr__(self) -> str:
        return "VALUE"


VALUE = _Sentinel()


def _unpacked(frame: FrameType) -> int | None:
    """The number of names into which the frame's current instruction unpacks."""
    code: CodeType = frame.f_code
    for instruction in dis.get_instructions(code):
        if instruction.offset == frame.f_lasti:
            return instruction.arg if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _copied(value: Any) -> Any:
    return type(value)(value) if type(value) in (list, dict, set) else value


def _restore(module: torch.nn.Module, before: dict[str, tuple[Any, Any]]) -> bool:
    """Undoes a trace's changes of the module's attributes; returns whether there were any."""
    changed = False
    for name in [name for name in module.__dict__ if name not in before]:
        del module.__dict__[name]
        changed = True
    for name, (value, copied) in before.items():
        if module.__dict__.get(name, VALUE) is not value:
            module.__dict__[name] = value
            changed = True
        if copied is not value and not _has_same_parts(value, copied):
            value.clear()
            (value.extend if isinstance(value, list) else value.update)(copied)
            changed = True
    return changed


def _has_same_parts(now: Any, then: Any) -> bool:
    """Whether a container still has the same objects."""
    if len(now) != len(then):
        return False
    if isinstance(then, set):
        return bool(now == then)
    if isinstance(then, dict):
        return list(now) == list(then) and all(now[key] is then[key] for key in then)
    return all(a is b for a, b in zip(now, then, strict=True))


def _first(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:100]}" if lines else type(error).__name__


@contextlib.contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Inside it every module counts as in eval mode, because folded forwards run only without gradients."""
    modules = [module for module in model.modules() if module.training]
    for module in modules:
        module.__dict__["training"] = False
    try:
        yield
    finally:
        for module in modules:
            module.__dict__["training"] = True
