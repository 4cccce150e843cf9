"""A model as a graph of torch.fx, whose leaves are the modules that the rules know."""

from __future__ import annotations

from typing import Any

import torch

from .. import stages
from ..nn import Transform
from ..nn.chained import Chained
from .proxies import IN_PLACE, Guard, Proxy, is_foreign, is_write
from .values import NoStreamError
from .wrappers import is_wrapper


class _Tracer(torch.fx.Tracer):
    def __init__(self, root: torch.nn.Module) -> None:
        super().__init__()
        # Asked before the trace, in which parameters have no values.
        self._elementwise = {id(module) for module in root.modules() if is_elementwise(module)}
        self.guard = Guard(root)

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return Proxy(node, self)

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor):
            self.guard.add(a)
        return super().create_arg(a)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, torch.nn.Sequential):
            return False
        if "forward" in vars(m):  # its owner's
            return False
        if isinstance(m, Chained) or is_wrapper(m) or id(m) in self._elementwise:
            return True
        # A parametrized class is torch's whatever class it is made of.
        is_torchs = str(getattr(type(m).forward, "__module__", "")).startswith("torch.")
        return is_torchs and super().is_leaf_module(m, module_qualified_name)


def is_elementwise(module: torch.nn.Module) -> bool:
    """Whether `stages.from_module` knows the module."""
    try:
        stages.from_module(module)
    except TypeError:
        return False
    return True


def is_nothing(module: torch.nn.Module) -> bool:
    """Whether the module has no stage, such as an Identity, or a Dropout in eval mode."""
    return is_elementwise(module) and not stages.from_module(module)


def may_return_input(module: torch.nn.Module) -> bool:
    """Whether the module's result may be its input."""
    return is_nothing(module) or isinstance(module, torch.nn.modules.dropout._DropoutNd | Transform)


class _Whole(torch.nn.Module):
    """Calls the model, which may itself be a leaf."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x):  # type: ignore[no-untyped-def]  # torch.fx would write annotations into the graph's code
        return self.model(x)


def traced(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.fx.Graph]:
    """The module whose attributes the graph names, and the graph of its `forward(x)`.

    Raises:
        NoStreamError: torch.fx cannot follow the model.
    """
    whole = _Whole(model)
    attributes = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    try:
        tracer = _Tracer(model)
        with tracer.guard:
            graph = tracer.trace(whole)
    except NoStreamError:
        raise
    except Exception as error:  # whatever the model's code makes of a tensor without values
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NoStreamError(f"torch.fx cannot follow its forward: {text}") from error
    finally:  # what forwards have set to tensors without values
        for module, own, buffers in attributes:
            _restore(vars(module), own)
            _restore(module._buffers, buffers)
    for node in graph.nodes:  # so that the first argument is a positional argument
        first = "input" if node.op != "call_module" else next(iter(node.kwargs), "")
        if not node.args and first in node.kwargs:
            node.args, node.kwargs = (node.kwargs[first],), {k: v for k, v in node.kwargs.items() if k != first}
    remove_dead(graph, dict(whole.named_modules()))
    return whole, graph


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    for name in now.keys() - before.keys():
        del now[name]
    now.update({name: value for name, value in before.items() if now.get(name, now) is not value})


def remove_dead(graph: torch.fx.Graph, modules: dict[str, torch.nn.Module]) -> None:
    """Removes nodes whose results nobody reads, unless they may change something."""
    for node in reversed(list(graph.nodes)):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        is_kept = node.op in ("placeholder", "output") or is_in_place(node, module) or is_foreign(node.target)
        if not node.users and not is_kept:
            graph.erase_node(node)


def name_of(node: torch.fx.Node) -> str:
    """The module that a node belongs to, as the model names it."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(node.target) if node.op == "call_module" else next(reversed(stack.values()), ("",))[0] if stack else ""
    return path.removeprefix("model").removeprefix(".")


def function_name(node: torch.fx.Node) -> str:
    """A function's or a method's name, without the underscore of in-place forms."""
    target: Any = node.target
    name = str(target if isinstance(target, str) else getattr(target, "__name__", target))
    name = IN_PLACE.get(name, name)
    return name.strip("_") if not name.startswith("__") else name


# NumPy's, which torch takes as well.
_OTHER_NAMES = {"axis": "dim", "keepdims": "keepdim", "axis0": "dim0", "axis1": "dim1"}


def bound(node: torch.fx.Node, *names: str) -> dict[str, Any]:
    """The arguments of a function or method by these names of its positions."""
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return {_OTHER_NAMES.get(name, name): value for name, value in given.items()}


def is_in_place(node: torch.fx.Node, module: torch.nn.Module | None) -> bool:
    """Whether the node may change its input."""
    if module is not None:
        return bool(getattr(module, "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    return is_write(node.target) or bool(node.kwargs.get("inplace")) or node.kwargs.get("out") is not None
