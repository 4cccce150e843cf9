"""Python source of a folded forward, from the nodes of its traces; it returns None if a call fits no trace."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from .functional import Bound
from .fused import Fused

CALL = "_call_"  # the argument that computes the convolution of a wrapper (conv_wrapper.py)

_INFIX = {operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//"}


class Source:
    """Lines of a function of the module and its arguments, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.objects: dict[str, Any] = {}
        self.modules: dict[str, str] = {}
        self._names: dict[fx.Node, str] = {}

    def constant(self, value: Any) -> str:
        """The text of an object."""
        if value is None or value is Ellipsis or type(value) in (bool, int, str):
            return repr(value)
        for name, known in self.objects.items():
            if known is value:
                return name
        name = f"k{len(self.objects)}"
        self.objects[name] = value
        return name

    def module(self, path: str) -> str:
        """The name of a submodule's variable."""
        return self.modules.setdefault(path, f"m{len(self.modules)}")

    def name(self, node: fx.Node) -> str:
        """The name of a value's variable; placeholders have those of their arguments."""
        if node not in self._names:
            self._names[node] = f"a_{node.target}" if node.op == "placeholder" else f"v{len(self._names)}"
        return self._names[node]

    def text(self, a: Any) -> str:
        """The text of an argument."""
        if isinstance(a, fx.Node):
            return self.name(a)
        if isinstance(a, (list, tuple)):
            parts = [self.text(one) for one in a]
            if type(a) is list or isinstance(a, list):
                return "[" + ", ".join(parts) + "]"
            if hasattr(a, "_fields"):
                return f"{self.constant(type(a))}({', '.join(parts)})"
            return "(" + "".join(part + ", " for part in parts) + ")"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{self.constant(k)}: {self.text(v)}" for k, v in a.items()) + "}"
        if isinstance(a, slice):
            return f"slice({self.text(a.start)}, {self.text(a.stop)}, {self.text(a.step)})"
        return self.constant(a)

    def call(self, node: fx.Node) -> str:
        """The text of what a node computes."""
        args = [self.text(a) for a in node.args]
        named = [f"{k}={self.text(a)}" for k, a in node.kwargs.items()]
        if node.op == "get_attr" and node.meta.get("is_module"):
            return self.module(str(node.target))
        if node.op == "get_attr":
            return f"self.{node.target}" if _is_path(str(node.target)) else _walk(str(node.target))
        if node.op == "call_module" and node.meta.get("is_wrapped"):
            return f"a_{CALL}({self.module(str(node.target))}, {args[0]})"
        if node.op == "call_module":
            return f"{self.module(str(node.target))}({', '.join(args + named)})"
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({', '.join(args[1:] + named)})"
        if node.target is getattr and len(args) == 2:
            return f"{args[0]}.{node.args[1]}"
        if node.target is operator.getitem:
            return f"{args[0]}[{args[1]}]"
        infix = _INFIX.get(node.target)  # type: ignore[arg-type]
        if infix is not None:
            return f"({args[0]} {infix} {args[1]})"
        return f"{self.constant(node.target)}({', '.join(args + named)})"

    def body(self, nodes: Iterable[fx.Node], depth: int) -> None:
        """The lines of a path's nodes; each value is released after its last use."""
        indent, ordered = "    " * depth, list(nodes)
        last: dict[fx.Node, fx.Node] = {}
        for node in ordered:
            for one in node.all_input_nodes:
                last[one] = node
        for node in ordered:
            if node.op == "output":
                self.lines.append(f"{indent}return ({self.text(node.args[0])},)")
            elif node.op != "placeholder":
                done = [self.name(one) for one in node.all_input_nodes if last[one] is node]
                self.lines.append(f"{indent}{self.name(node)} = {self.call(node)}")
                if node.meta.get("is_wrapped"):
                    self.lines.append(f"{indent}if {self.name(node)} is None: return None")
                if done:
                    self.lines.append(indent + " = ".join(done) + " = None")

    def function(self, arguments: Iterable[str]) -> Callable[..., Any]:
        """The compiled function of the module and those arguments. It returns None if no path fits."""
        head = [f"def forward(self, {', '.join('a_' + name for name in arguments)}):"]
        for path, name in self.modules.items():  # __getattr__ takes longer
            head.append(f"    {name} = self" + "".join(f"._modules[{part!r}]" for part in path.split(".")))
        text = "\n".join([*head, *self.lines, "    return None", ""])
        scope = dict(self.objects)
        exec(compile(text, "<sluice.replace>", "exec"), scope)
        function: Callable[..., Any] = scope["forward"]
        return function


def _is_path(path: str) -> bool:
    return all(part.isidentifier() for part in path.split("."))


def _walk(path: str) -> str:
    text = "self"
    for part in path.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text


def is_calm(node: fx.Node, modules: dict[str, torch.nn.Module], are_calm: Callable[[torch.nn.Module], bool]) -> bool:
    """Whether a node certainly writes into no tensor, so that reads may move across it."""
    if node.kwargs.get("inplace") is True or "out" in node.kwargs or any(a is True for a in node.args):
        return False  # a function may take `inplace` by position
    if isinstance(node.target, Fused) or (isinstance(node.target, type) and issubclass(node.target, Bound)):
        return True
    if node.op in ("placeholder", "get_attr"):
        return True
    if node.op == "call_module":
        return are_calm(modules[str(node.target)])
    name = str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", "_")
    if node.op == "call_method":
        return hasattr(torch.Tensor, name) and not name.endswith("_") and not name.startswith(("set", "__"))
    if node.op != "call_function" or name.endswith("_"):
        return False
    module = getattr(node.target, "__module__", None) or "torch"
    if node.target in _WRITERS or "batch_norm" in name:
        return False
    return module.startswith("torch") or module in ("_operator", "math", "builtins")


_WRITERS = frozenset((
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.ipow, operator.imod,
    operator.iand, operator.ior, operator.ixor, operator.imatmul, operator.ilshift, operator.irshift, operator.setitem,
    operator.delitem, torch.nn.functional.instance_norm, setattr, torch.nn.functional.embedding,
))  # fmt: skip
