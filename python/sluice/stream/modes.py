"""The caller's torch modes, which are per thread, for the worker threads that call `fn`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


class Modes:
    """Grad, inference and autocast modes of the constructing thread."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._cache = torch.is_autocast_cache_enabled()
        self._autocast = {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")
        }

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enters the same modes in the current thread."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self._inference))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for device, (enabled, dtype) in self._autocast.items():
                if enabled:
                    context = torch.autocast(device, dtype=dtype, cache_enabled=self._cache)
                    stack.enter_context(context)
            yield


def untraced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Calls the function outside of torch.compile's tracing: the work of streams is not part of a graph."""
    # Loading Dynamo takes a second; if it is not loaded, nothing is traced.
    if "torch._dynamo" not in sys.modules:
        return function(*arguments)
    return torch.compiler.disable(function)(*arguments)


def mark_step() -> None:
    """Tells the CUDA graphs of compiled functions that the last call's results are no longer needed."""
    if "torch._inductor.cudagraph_trees" in sys.modules:  # loading it would take seconds
        torch.compiler.cudagraph_mark_step_begin()
