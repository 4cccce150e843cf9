"""The way of a module's calls into torch's tracer: Dynamo traces the module, and its graphs run folded.

`torch.nn.Module.__call__` runs what is in `_compiled_call_impl`, as after `module.compile()`. Copies and pickles drop
that attribute; they get an entry of their own by another attribute, which stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._C._dynamo.eval_frame import set_eval_frame
from torch.autograd import forward_ad
from torch.fx._symbolic_trace import is_fx_symbolic_tracing
from torch.nn.modules.module import _has_any_global_hook

from .._autograd import innermost_transform
from ..nn.chained import PLAIN, Chained, forwards
from ..nn.state import NAME
from .frames import Compiler, lock, traced

_CALL = "_compiled_call_impl"
_IGNORED = "__jit_ignored_attributes__"  # torch.jit.script reads it


class Folding:
    """The backend of a model's entries.

    Args:
        convolutions: the only convolutions that are folded; None for all.
        cuda_graphs: whether calls on a GPU become CUDA graphs.
    """

    def __init__(self, convolutions: Sequence[torch.nn.Module] | None = None, cuda_graphs: bool = False) -> None:
        self.convolutions, self.cuda_graphs = convolutions, cuda_graphs
        self._calls: dict[Any, tuple[Callable[..., Any], Compiler]] = {}

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What Dynamo runs for a graph."""
        from ..compile.folded_graph import folded

        weights = None
        if self.convolutions is not None:
            weights = {id(one) for part in self.convolutions for one in part.parameters()}
        return folded(graph, inputs, weights, self.cuda_graphs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Folding:
        if self.convolutions is None:  # then copies may run what was compiled for the first
            return self
        import copy

        made = memo[id(self)] = Folding(None, self.cuda_graphs)
        made.convolutions = copy.deepcopy(self.convolutions, memo)
        return made

    def __reduce__(self) -> Any:
        return Folding, (self.convolutions, self.cuda_graphs)

    def call_of(self, module: torch.nn.Module, code: tuple[Any, ...]) -> tuple[Callable[..., Any], Compiler]:
        """The function that is traced for modules like this module, and Dynamo's compiler for it."""
        shapes = tuple((name, tuple(one.shape)) for name, one in module.named_parameters())
        key = type(module), shapes, code
        if key not in self._calls:
            self._calls[key] = traced(self)
        return self._calls[key]


class Entry:
    """The entry of a module; it puts itself into the module.

    Args:
        module: the module, whose attributes may not be there yet.
        folding: what its graphs become.

    Attributes:
        graphs: what ran for the module; None before the first call.
    """

    graphs: Any = None
    _kind: type | None = None
    _without_gain: tuple[torch.device, torch.dtype] | None = None
    _most = _most_small = 0.0
    _skipped: tuple[Entry, ...] = ()
    _is_settled = False

    def __init__(self, module: torch.nn.Module, folding: Folding) -> None:
        self.module, self.folding = module, folding
        self._functions: dict[str, Any] = {}
        self.put()

    def __reduce__(self) -> Any:
        return Entry, (self.module, self.folding)

    def put(self) -> None:
        """Puts the entry into the module."""
        own = self.module.__dict__
        own[NAME] = own[_CALL] = self
        own[_IGNORED] = [*getattr(type(self.module), _IGNORED, ()), NAME, _CALL]

    def remove(self) -> None:
        """Takes the entry out of the module, unless another entry is in its place."""
        own = self.module.__dict__
        if own.get(NAME) is self:
            del own[NAME], own[_IGNORED]
        if self.is_called():
            del own[_CALL]

    def is_called(self) -> bool:
        """Whether the module's calls go through this entry."""
        return self.module.__dict__.get(_CALL) is self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        module = self.module
        if torch.compiler.is_compiling():
            return module._call_impl(*args, **kwargs)
        caller = sys._getframe(1).f_locals.get("self")
        if caller is not module and isinstance(caller, torch.nn.Module) and caller.__dict__.get(_CALL) is self:
            return caller._call_impl(*args, **kwargs)  # a copy with the same attributes, such as DataParallel's
        arguments = (*args, *kwargs.values())
        if self._is_left(arguments):
            return self._call_as_python(arguments, args, kwargs)
        if _is_in_mode():
            return module._call_impl(*args, **kwargs)
        if self._skipped and self._without_gain != self._place():
            self._enter_parts()
        if self._kind is not type(module) or self._is_patched():
            self._start()
        if not self._is_plain(arguments):
            return module._call_impl(*args, **kwargs)
        names = tuple(kwargs)  # Dynamo does not guard their order
        if names not in self._calls:
            code = self._methods, *self._functions.items(), names
            self._calls[names] = self.folding.call_of(module, code)
        call, compiler = self._calls[names]
        current, graphs = self._current, self.graphs
        former = current.graphs, current.arguments, current.ahead
        current.graphs, current.arguments, current.ahead = graphs, arguments, graphs.run_ahead(arguments)
        outer = set_eval_frame(False if compiler.is_done else compiler)  # False runs what is compiled already
        try:
            result = call(module, *args, **kwargs)
        finally:
            set_eval_frame(outer)
            if current.ahead is not None:
                graphs.ahead.miss()
            current.graphs, current.arguments, current.ahead = former
        if graphs.is_new:
            graphs.is_new = False
            self._note_gain(arguments)
        return result

    def _call_as_python(self, arguments: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result without a graph; in a small call with torch's convolutions, which cost the host less than ours."""
        former, forwards.are_torchs = forwards.are_torchs, _size_of(arguments) <= self._most_small
        try:
            result = self.module._call_impl(*args, **kwargs)
        finally:
            forwards.are_torchs = former
        if not self._is_settled:
            self._skip_parts()
        return result

    def _start(self) -> None:
        """Prepares the first call: imports Dynamo, which takes seconds."""
        from ..compile.cuda_graphs import CudaGraphs
        from ..compile.folded_graph import Graphs, current

        with lock:
            known = self._functions if self.graphs is None else {**self._functions, **self.graphs.functions}
            self._functions = {name: getattr(F, name, None) for name in known}
            self._owner = next((part for part in self.module.modules() if part._parameters), self.module)
            self._current, self.graphs = (
                current,
                Graphs(self.module, CudaGraphs() if self.folding.cuda_graphs else None),
            )
            self._methods = _methods_of(self.module)
            self._calls: dict[tuple[str, ...], tuple[Callable[..., Any], Compiler]] = {}
            self._kind, self._without_gain = type(self.module), None

    def _note_gain(self, arguments: Sequence[Any]) -> None:
        """Notes up to which size of the arguments the graphs gain nothing."""
        least = self.graphs.gain.least(sum(1 for _ in self.module.modules()))
        self._without_gain = self._place() if least > 0 else None
        size = _size_of(arguments)
        self._most = size * least if size > 0 else float("inf")
        self._most_small = size * self.graphs.gain.most_small()

    def _is_left(self, arguments: Sequence[Any]) -> bool:
        """Whether the model's graphs gain nothing on its device, in its dtype and for the arguments' size."""
        if self._without_gain is None or self._without_gain != self._place():
            return False
        return self._most == float("inf") or _size_of(arguments) <= self._most

    def _is_always_left(self) -> bool:
        return self._most == float("inf") and self._is_left(())

    def _skip_parts(self) -> None:
        """Takes the entries of parts that gain nothing either out of the parts' calls, until it finds no more."""
        entries = [one for part in self.module.modules() if (one := entry_of(part)) is not None and one is not self]
        found = [one for one in entries if one.is_called() and one._is_always_left()]
        for entry in found:
            entry.module.__dict__.pop(_CALL, None)  # another thread may be here too
        self._skipped, self._is_settled = (*self._skipped, *found), not found

    def _enter_parts(self) -> None:
        """Puts them into the calls again: the module has another device or dtype now."""
        for entry in self._skipped:
            if entry_of(entry.module) is entry:
                entry.module.__dict__.setdefault(_CALL, entry)
        self._skipped, self._is_settled = (), False

    def _is_patched(self) -> bool:
        """Whether a class or torch.nn.functional has another function than at the trace; Dynamo does not guard them."""
        for kind, name, then in self._methods:
            if getattr(kind, name) is not then:
                return True
        known = (self._functions, self.graphs.functions)
        return any(getattr(F, name, None) is not then for found in known for name, then in found.items())

    def _is_plain(self, values: Iterable[Any]) -> bool:
        """Whether parameters and arguments are plain tensors, and no gradient is wanted."""
        for value in values:
            kind = type(value)
            if kind is not torch.Tensor and (
                (isinstance(value, torch.Tensor) and kind not in PLAIN) or _is_numpys(kind)
            ):
                return False
        first = next(iter(self._owner._parameters.values()), None)
        if first is None:
            return True
        return type(first) in PLAIN and not (torch.is_grad_enabled() and first.requires_grad)

    def _place(self) -> tuple[torch.device, torch.dtype] | None:
        """The model's device and dtype."""
        first = next(iter(self._owner._parameters.values()), None)
        if first is None:
            return None
        return first.device, first.dtype


def _size_of(arguments: Sequence[Any]) -> int:
    """The number of elements of the first tensor; 0 if there is none."""
    return next((one.numel() for one in arguments if isinstance(one, torch.Tensor)), 0)


def _is_in_mode() -> bool:
    """Whether a mode changes what functions do."""
    if torch._C._is_any_autocast_enabled() or _has_any_global_hook() or innermost_transform() is not None:
        return True
    if torch._C._len_torch_dispatch_stack() > 0 or torch._C._len_torch_function_stack() > 0:
        return True
    return (
        forward_ad._current_level >= 0 or torch._C._get_tracing_state() is not None or is_fx_symbolic_tracing()
    )  # fmt: skip


def entry_of(module: torch.nn.Module) -> Entry | None:
    """The module's entry, if it has one."""
    found = module.__dict__.get(NAME)
    return found if isinstance(found, Entry) else None


def _is_numpys(kind: type) -> bool:
    """Whether Dynamo would take values of a class for tensors."""
    return kind.__module__ == "numpy"


def _methods_of(module: torch.nn.Module) -> tuple[tuple[type, str, Any], ...]:
    """The methods of the classes of a module's parts that calls run."""
    kinds = dict.fromkeys(map(type, module.modules()))
    kinds.update(dict.fromkeys(base for kind in kinds for base in kind.__bases__ if issubclass(kind, Chained)))
    names = ("__call__", "forward", "_conv_forward")
    return tuple((kind, name, getattr(kind, name)) for kind in kinds for name in names if hasattr(kind, name))


def may_have_entry(module: torch.nn.Module) -> bool:
    """Whether a module's calls may go through an entry: nobody else uses the attributes."""
    if isinstance(module, (torch.jit.ScriptModule, torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        return False
    return NAME not in module.__dict__ and module.__dict__.get(_CALL) is None
