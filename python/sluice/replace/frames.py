"""Dynamo's compiler of frames as `sluice.replace` runs it: for all lengths from the first trace, or else for a few."""

from __future__ import annotations

import threading
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..nn.chained import forwards

# Dynamic sizes from the first trace, and guards that torch leaves out by default.
_CONFIGURATION = {
    "assume_static_by_default": False,
    "skip_nnmodule_hook_guards": False,
    "skip_no_tensor_aliasing_guards_on_parameters": False,
    "specialize_float": True,
    "record_runtime_overhead": False,
    "recompile_limit": 16,
}
_MOST_FAILURES = 3
_MOST_LENGTHS = 3  # lengths for which a frame is traced, where a trace holds for a single length
lock = threading.RLock()
Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def traced(folding: Backend) -> tuple[Callable[..., Any], Compiler]:
    """A function that calls a module, whose frames are compiled apart from all others, and their compiler."""
    own = types.FunctionType(_call.__code__.replace(), _call.__globals__, "call")  # whose compiled code is its own
    return own, Compiler(folding, own.__code__)


def _call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    return module._call_impl(*args, **kwargs)


class Compiler:
    """Dynamo's compiler of frames under our configuration. A frame that it cannot compile runs as Python.

    Args:
        folding: what graphs become.
        whole: the code whose graph is all of a call.

    Attributes:
        is_done: whether a frame was traced for so many lengths, each for itself, that another trace would not be the
            last: a loop over the positions, for example.
    """

    def __init__(self, folding: Backend, whole: types.CodeType) -> None:
        from torch._dynamo import optimize

        self.is_done = False
        self._folding, self._whole = folding, whole
        self._dynamos: Any = optimize(self._folded).callback  # type: ignore[union-attr]
        self._torchdynamo_orig_backend = self._dynamos  # a name that leads torch to the backend
        self._failures: dict[types.CodeType, int] = {}
        self._code: types.CodeType | None = None
        self._sizes: dict[Any, list[tuple[int, ...]]] = {}

    def _folded(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        kinds, sizes = _fixed_sizes(graph)
        known = self._sizes.setdefault((self._code, kinds), [])
        if all(any(a != b and a > 1 and b > 1 for a, b in zip(sizes, one, strict=True)) for one in known):
            known.append(sizes)
        self.is_done = self.is_done or len(known) >= _MOST_LENGTHS
        made = self._folding(graph, inputs)
        if self._code is self._whole and hasattr(made, "is_whole"):
            made.is_whole = True
        return made

    def __call__(self, frame: Any, *args: Any, **kwargs: Any) -> Any:
        """What Dynamo makes of a frame."""
        from torch._dynamo import config
        from torch._dynamo.types import ConvertFrameReturn

        from ..compile.fold import log

        code = frame.f_code
        known = {name: value for name, value in _CONFIGURATION.items() if hasattr(config, name)}
        with lock, config.patch(known):
            if self._failures.get(code, 0) >= _MOST_FAILURES:
                return ConvertFrameReturn()
            former, forwards.are_torchs = forwards.are_torchs, True
            self._code = code
            try:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", "(?s).*Dynamo ")  # advice to who has called torch.compile
                    return self._dynamos(frame, *args, **kwargs)
            except Exception as error:
                self._failures[code] = self._failures.get(code, 0) + 1
                log.debug("%s runs as Python: %s", code.co_name, error)
                return ConvertFrameReturn()
            finally:
                forwards.are_torchs = former


def _fixed_sizes(graph: torch.fx.GraphModule) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What a graph's arguments are, and their sizes, of which each that may vary is 0."""
    from ..compile.nodes import is_parameter

    nodes = [node for node in graph.graph.find_nodes(op="placeholder") if not is_parameter(node)]
    values = [one for node in nodes if isinstance(one := node.meta.get("example_value"), torch.Tensor)]
    kinds = tuple((one.dtype, one.device, one.dim()) for one in values)
    return kinds, tuple(_fixed(size) for one in values for size in one.shape)


def _fixed(size: int | torch.SymInt) -> int:
    """A size that is the same for all calls of a graph; 0 for any other size."""
    return size if isinstance(size, int) else size.node.maybe_as_int() or 0
