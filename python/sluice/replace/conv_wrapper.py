"""Convolution wrappers, modules that pad, convolve and trim: a parent's chains go through them into the convolution.

    x  ->  pad  ->  convolution  ->  trim  ->  result        any number of pads and trims, one convolution
    |                |        |
    |               pre      post
    the stages before the module, and after it

An elementwise function commutes with a pad or trim of positions, except with added zeros: there it has to leave zero
as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..nn.convolution import Conv1d, ConvTranspose1d
from .classes import Derived, derived, has_other_hooks, own_class
from .fused import WRAPPER
from .guards import Guards, holds
from .observe import Refused
from .source import CALL, is_calm
from .trace import VALUE, Trace, evaluating
from .writer import Writer

_PADS = ("constant", "reflect", "replicate", "circular")
_OF_SHAPES = ("shape", "ndim", "dtype", "device")


class ConvWrapper:
    """The forward of such a module, with its convolution's call left open. It holds no module, so copies share it.

    Attributes:
        path: the convolution's.
        adds_zeros: whether the input is padded with zeros.
        trims: whether positions of the result are removed.

    Args:
        root: the module, with its convolution swapped.
        forward: its own class's.

    Raises:
        Refused: it does something else.
    """

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any]) -> None:
        parameters = [p for p in inspect.signature(forward).parameters.values() if p.kind is not p.VAR_KEYWORD]
        if len(parameters) < 2:
            raise Refused("forward takes no value")
        _, first, *others = parameters
        if any(p.default is not None for p in others):
            raise Refused("forward takes more than one value")
        arguments = {first.name: VALUE, **{p.name: None for p in others}}
        with evaluating(root):
            writer = _WrapperWriter(root, forward, arguments)
            writer.explore([], 1)
        if len(writer.paths) != 1:
            raise Refused("; ".join(filter(None, writer.reasons)) or "forward does not call exactly one convolution")
        [self.path] = writer.paths
        self.adds_zeros, self.trims = writer.adds_zeros, writer.trims
        self._forward, self._guards = forward, Guards(root, writer.observed, writer.called)
        self._function = writer.source.function([first.name, CALL])

    def __deepcopy__(self, memo: object) -> ConvWrapper:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return _unknown, ()

    def run(self, module: torch.nn.Module, x: Any, call: Callable[..., Any]) -> tuple[Any] | None:
        """The result in a tuple, the convolution computed by `call(convolution, x)`; None if forward runs itself.

        The parent checks the hooks of the module and its convolution.
        """
        if type(module).forward is not self._forward or not holds(self._guards, [], module):
            return None
        result: tuple[Any] | None = self._function(module, x, call)
        return result


def _unknown() -> None:
    """The wrapper of a pickle: it is made once the module exists."""


class Wrapping(Derived):
    """A module with a `ConvWrapper`."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if self.__dict__.get(WRAPPER, self) is None:
            own: Any = type(self)._sluice_bases[1]
            self.__dict__[WRAPPER] = ConvWrapper(self, own.forward)  # type: ignore[arg-type]


def wrapping_class(own: type) -> type:
    """The class of wrapping modules of class `own`."""
    return derived(Wrapping, own)


def wrapper_of(module: torch.nn.Module) -> ConvWrapper | None:
    """The module's wrapper, if it has one."""
    found: ConvWrapper | None = module.__dict__.get(WRAPPER)
    return found


class _WrapperWriter(Writer):
    """Writes the source of a wrapper, trace by trace."""

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any], arguments: dict[str, Any]) -> None:
        super().__init__(root, forward, arguments)
        self.paths: set[str] = set()
        self.adds_zeros = self.trims = False

    def finish(self, trace: Trace, depth: int) -> None:
        """Writes the lines of one trace; they give no result if it is no wrapper."""
        nodes: list[fx.Node] = [] if trace.reason else list(trace.graph.nodes)
        convolution = self._through(nodes)
        if convolution is None:
            return self.give_up(trace.reason, depth)
        convolution.meta["is_wrapped"] = True
        self.paths.add(str(convolution.target))
        return self.write(nodes, depth)

    def _through(self, nodes: list[fx.Node]) -> fx.Node | None:
        """The convolution on the path from the argument to the result."""
        values = [node for node in nodes if node.op == "placeholder"]
        if len(values) != 1 or not all(is_calm(n, self.modules, self._is_calm) or n.op == "output" for n in nodes):
            return None
        value, found = values[0], None
        while True:
            users = [user for user in value.users if not _asks_for_shape(user)]
            if len(users) != 1:
                return None
            [user] = users
            if user.op == "output":
                return found if user.args[0] is value else None
            if not user.args or user.args[0] is not value or user.all_input_nodes.count(value) != 1:
                return None
            if found is None and self._is_convolution(user):
                found = user
            elif found is None and _pads(user):
                self.adds_zeros = self.adds_zeros or _mode(user) == "constant"
            elif _trims(user):
                self.trims = self.trims or found is not None
            elif not (user.op == "call_method" and user.target == "contiguous" and len(user.args) == 1):
                return None
            value = user

    def _is_calm(self, module: torch.nn.Module) -> bool:
        return own_class(module) in (Conv1d, ConvTranspose1d) and not has_other_hooks(module)

    def _is_convolution(self, node: fx.Node) -> bool:
        is_called = node.op == "call_module" and len(node.args) == 1 and not node.kwargs
        return is_called and self._is_calm(self.modules[str(node.target)])


def _asks_for_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in ("size", "dim", "ndimension")
    return node.op == "call_function" and node.target is getattr and node.args[1] in _OF_SHAPES


def _pads(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is not torch.nn.functional.pad or _mode(node) not in _PADS:
        return False
    value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
    return value is None or (isinstance(value, (int, float)) and value == 0)


def _mode(node: fx.Node) -> Any:
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")


def _trims(node: fx.Node) -> bool:
    """Whether it takes some of the last dimension's elements."""
    if node.op != "call_function" or getattr(node.target, "__name__", "") != "getitem":
        return False
    index: Any = node.args[1]
    return isinstance(index, tuple) and len(index) == 2 and index[0] is Ellipsis and isinstance(index[1], slice)
