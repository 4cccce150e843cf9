"""Links the chains of a graph's ops at the same time, before the first call would link one after another."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.fx import Graph, Node

_MOST_THREADS = 32


def link_ahead(graph: Graph) -> int:
    """Links what calls of the traced sizes run on a GPU; returns the number of different calls."""
    jobs: dict[str, Callable[[], None]] = {}
    for node in graph.nodes:
        prepare = _prepare_of(node)
        if prepare is None or "val" not in node.meta or not node.meta["val"].is_cuda:
            continue
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: _Like(one.meta["val"]))  # type: ignore
        text = f"{node.target} {arguments}"
        if text not in jobs and ("pre" in node.kwargs or "post" in node.kwargs or isinstance(node.args[1], str)):
            jobs[text] = _job(prepare, arguments)
    if len(jobs) > 1:
        with ThreadPoolExecutor(min(_MOST_THREADS, 2 * (os.cpu_count() or 1))) as pool:  # some wait for others
            for done in [pool.submit(job) for job in jobs.values()]:
                done.result()
    return len(jobs)


class _Like:
    """What makes a tensor as a fake one is, with the sizes of the trace."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        x = self._value
        if not isinstance(x, torch.Tensor):
            return str(_number(x))
        return f"{_numbers(x.shape)} {_numbers(x.stride())} {x.dtype}"

    def __call__(self) -> Any:
        x = self._value
        if not isinstance(x, torch.Tensor):
            return _number(x)
        return torch.empty_strided(_numbers(x.shape), _numbers(x.stride()), dtype=x.dtype, device=x.device)


def _number(value: Any) -> Any:
    return value.node.hint if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) else value


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(map(_number, values))


def _prepare_of(node: Node) -> Any:
    """The op that links what a call of the node's op would run."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "sluice":
        return None
    return getattr(torch.ops.sluice, f"_prepare_{target.overloadpacket.__name__}", None)


def _job(prepare: Any, arguments: Any) -> Callable[[], None]:
    def run() -> None:
        args, named = torch.utils._pytree.tree_map_only(_Like, lambda one: one(), arguments)
        device = args[0].device
        with torch.cuda.device(device), torch.inference_mode():
            prepare(*args, **named)

    return run
