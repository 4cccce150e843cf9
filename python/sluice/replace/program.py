"""Folded forwards: a class of a module's own class that runs the code made from its traces, if that is right."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch

from ..nn.chained import PLAIN
from .classes import Derived, derived
from .fusions import Fusion, fold
from .guards import Guards, holds, is_eager
from .observe import Refused
from .trace import VALUE, Trace, evaluating
from .writer import Writer

ATTRIBUTE = "_sluice_folded"


class Way:
    """A function for calls that give the same arguments, and its conditions. It holds no module.

    Attributes:
        folded: names of convolutions and what their chains compute.
        reason: why nothing is folded.
    """

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any], arguments: dict[str, Any]) -> None:
        writer = _FoldWriter(root, forward, arguments)
        writer.explore([], 1)
        self.folded = [(fusion.path, str(fusion)) for fusion in writer.fusions]
        self.reason = next(filter(None, writer.reasons), "")
        if writer.fusions:
            self.guards = Guards(root, writer.observed, writer.called)
            paths = sorted({path for fusion in writer.fusions for path in _paths(fusion)})
            self.watched = [(tuple(path.split(".")), len(writer.modules[path]._modules) > 0) for path in paths]
            self.function = writer.source.function(arguments_of_value(arguments))


class _FoldWriter(Writer):
    """Writes traces with their fusions folded."""

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any], arguments: dict[str, Any]) -> None:
        super().__init__(root, forward, arguments)
        self.fusions: list[Fusion] = []

    def finish(self, trace: Trace, depth: int) -> None:
        """Writes the lines of one trace; they give no result if it was refused or has nothing to fold."""
        fusions = [] if trace.reason else fold(trace.graph, self.modules)
        if not fusions:
            return self.give_up(trace.reason, depth)
        self.fusions.extend(fusions)
        return self.write(list(trace.graph.nodes), depth)


def arguments_of_value(arguments: dict[str, Any]) -> list[str]:
    """The names of those that are tensors."""
    return [name for name, value in arguments.items() if value is VALUE]


def _paths(fusion: Fusion) -> list[str]:
    own = [fusion.path] if fusion.path else []
    return [*own, *(stage.module for stage in (*fusion.pre, *fusion.post) if stage.module is not None)]


class Program:
    """The code of a module's folded forward. It holds no module, so copies share it.

    Args:
        root: the module, its convolutions swapped.
        forward: of its own class.
    """

    def __init__(self, root: torch.nn.Module, forward: Callable[..., Any]) -> None:
        self.defaults: dict[str, Any] = {}
        self.positional: list[str] = []
        optional = []
        for parameter in list(inspect.signature(forward).parameters.values())[1:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            self.defaults[parameter.name] = VALUE if parameter.default is parameter.empty else parameter.default
            if parameter.kind is not parameter.KEYWORD_ONLY:
                self.positional.append(parameter.name)
            if parameter.default is None:
                optional.append(parameter.name)
        self.ways: dict[frozenset[str], Way] = {}
        self.folded: list[tuple[str, str]] = []
        self.reason = ""
        with evaluating(root):
            for given in _patterns(optional):
                self._add(root, forward, given)

    def __deepcopy__(self, memo: object) -> Program:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[()]]:
        return unknown, ()

    def run(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """The result of a call in a tuple, or None if forward has to run itself."""
        bound = self._bound(args, kwargs)
        if bound is None:
            return None
        given, values = bound
        way = self.ways.get(given)
        if way is None or not is_eager(module, values) or not holds(way.guards, way.watched, module):
            return None
        result: tuple[Any] | None = way.function(module, *values)
        return result

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[frozenset[str], list[torch.Tensor]] | None:
        """The optional arguments that a call gives, and its tensors; None if no trace covers them."""
        if len(args) > len(self.positional):
            return None
        values = dict(zip(self.positional, args, strict=False))
        if kwargs:
            if any(name in values or name not in self.defaults for name in kwargs):
                return None
            values.update(kwargs)
        given, tensors = [], []
        for name, default in self.defaults.items():
            value = values.get(name, default)
            if default is VALUE or (default is None and value is not None):
                if type(value) not in PLAIN:
                    return None
                tensors.append(value)
                if default is None:
                    given.append(name)
            elif value is not default and not (type(value) is type(default) and value == default):
                return None
        return frozenset(given), tensors

    def _add(self, root: torch.nn.Module, forward: Callable[..., Any], given: frozenset[str]) -> None:
        arguments = {name: VALUE if name in given else value for name, value in self.defaults.items()}
        try:
            way = Way(root, forward, arguments)
        except Refused as error:
            self.reason = self.reason or str(error)
            return
        if way.folded:
            self.ways[given] = way
            self.folded.extend(way.folded)
        elif not self.ways and len(given) == 0:  # for the call with the fewest arguments
            self.reason = way.reason


def _patterns(optional: list[str]) -> list[frozenset[str]]:
    """The sets of optional arguments to trace: every subset of up to two, else none and all."""
    if len(optional) > 2:
        return [frozenset(), frozenset(optional)]
    return [frozenset(c) for n in range(len(optional) + 1) for c in itertools.combinations(optional, n)]


def unknown() -> None:
    """The program of a pickle: it is made once the module exists."""


class Folded(Derived):
    """A module whose forward runs a `Program` if that equals its own forward, and otherwise its own."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        if self.__dict__.get(ATTRIBUTE, self) is None:  # from a pickle; its children exist now
            own: Any = type(self)._sluice_bases[1]
            self.__dict__[ATTRIBUTE] = Program(self, own.forward)  # type: ignore[arg-type]

    @staticmethod
    def _sluice_computed(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """The program's result of a call in a tuple, None if the module's own forward has to run."""
        if torch.compiler.is_compiling():
            return None
        program: Program | None = module.__dict__.get(ATTRIBUTE)  # a slice of a Sequential has none
        return None if program is None else program.run(module, args, kwargs)


def folded_class(own: type) -> type:
    """The class of folded modules of class `own`."""
    return derived(Folded, own)
