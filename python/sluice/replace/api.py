"""`replace` and what it returns."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable

import torch
from torch.nn.utils import parametrize

from ..nn.chained import Chained
from ..nn.state import NAME, State
from .activations import is_snake, one_pass_class
from .changes import Change
from .classes import OURS, Causal, bases_of, exchanged, has_other_hooks, is_convolution, own_class, target
from .conv_wrapper import ConvWrapper, wrapper_of, wrapping_class
from .functional import NAMES
from .fused import WRAPPER
from .guards import submodule
from .norms import FoldedNorm, has_weight_norm, note
from .observe import Refused
from .program import ATTRIBUTE, Folded, Program, folded_class
from .table import Row, table

_CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


class Replacement:
    """The changes that `sluice.replace` made to a model, and their undoing. `print` shows them as a table.

    A copy of a model with its replacement, as by `copy.deepcopy((model, replacement))`, undoes the changes of the copy.

    Attributes:
        model: the model, the same object that was given.
        rows: a `Row` for each convolution, then one for each module that calls convolutions, if it has a note.

    Example:
        >>> import torch, sluice
        >>> replacement = sluice.replace(torch.nn.Sequential(torch.nn.Conv1d(4, 8, 3), torch.nn.GELU()))
        >>> [(row.module, row.now, row.folded) for row in replacement.rows]
        [('0', 'sluice.nn.Conv1d', 'post: gelu()'), ('', 'Sequential, folded', '')]
        >>> replacement.undo()
        Sequential(
          (0): Conv1d(4, 8, kernel_size=(3,), stride=(1,))
          (1): GELU(approximate='none')
        )
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.rows: list[Row] = []
        self._changes: list[Change | FoldedNorm] = []

    def undo(self) -> torch.nn.Module:
        """Restores every module's class, attributes and activations. Returns the model.

        A weight_norm that `fold_weight_norm` removed comes back with its old values. A parametrization that was
        registered since stays. A warning names each module that is left as it is, because others made it into what
        cannot be reverted. A second call does nothing but for such modules.
        """
        left: list[Change | FoldedNorm] = []
        while self._changes:
            change = self._changes.pop()
            try:
                change.undo()
            except Exception as error:
                left.insert(0, change)
                warnings.warn(f"undo: {change.name or 'the model'} is left as it is: {error}", stacklevel=2)
        self._changes = left
        return self.model

    def __repr__(self) -> str:
        return table(self.rows)


def replace(
    model: torch.nn.Module,
    *,
    only: Callable[[str, torch.nn.Module], bool] | None = None,
    dry_run: bool = False,
    fold_weight_norm: bool = False,
) -> Replacement:
    """Swaps a model's convolutions for sluice's, in place, and folds the activations around them into their chains.

    Modules stay the same objects with another class: names, hooks, parameters and `state_dict` keys stay. It swaps
    `nn.Conv1d`, `nn.ConvTranspose1d`, depthwise `nn.Conv2d`, and causal convolutions of transformers. A parent whose
    forward `torch.fx` can trace runs its pointwise functions and modules inside the convolutions, if a call matches the
    trace; other calls, and those that want gradients, run its own forward.

    Args:
        model: any module. It may be in training mode, and it still trains.
        only: takes a convolution's name and the module, and says whether it may be swapped.
        dry_run: whether only the table is made; the model does not change.
        fold_weight_norm: whether weight_norm is computed once and removed, which changes `state_dict` keys.

    Returns:
        A `Replacement`; its `undo()` restores the model.

    Raises:
        TypeError: `model` is no module, or `only` is no function.

    Example:
        >>> import torch, sluice
        >>> model = torch.nn.Sequential(torch.nn.LeakyReLU(0.1), torch.nn.Conv1d(4, 8, 3), torch.nn.Tanh()).eval()
        >>> replacement = sluice.replace(model)
        >>> print(replacement)
        module       was         is now              folded                              why not
        1            Conv1d      sluice.nn.Conv1d    pre: leaky_relu(0.1), post: tanh()
        (the model)  Sequential  Sequential, folded
        >>> type(replacement.undo()[1])
        <class 'torch.nn.modules.conv.Conv1d'>
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"replace: model must be a torch.nn.Module, got {type(model).__name__}")
    if only is not None and not callable(only):
        raise TypeError(f"replace: only must be a function of a name and a module, got {type(only).__name__}")
    replacement = Replacement(model)
    try:
        _Replacer(replacement, only, fold_weight_norm).run()
    except BaseException:
        replacement.undo()
        raise
    if dry_run:
        replacement.undo()
    return replacement


class _Replacer:
    def __init__(
        self, replacement: Replacement, only: Callable[[str, torch.nn.Module], bool] | None, fold_norms: bool
    ) -> None:
        self.replacement, self.only, self.fold_norms = replacement, only, fold_norms
        self.rows: dict[torch.nn.Module, Row] = {}
        self.swapped: set[torch.nn.Module] = set()

    def run(self) -> None:
        modules = list(self.replacement.model.named_modules())
        for name, module in modules:
            if is_convolution(module):
                self._swap(name, module)
        # Children first: parents fold stages around those that are wrappers.
        parents = [self._fold(name, module) for name, module in reversed(modules) if self._may_fold(module)][::-1]
        taken = _in_chains(module for _, module in modules)
        for name, module in modules:
            if module not in taken and is_snake(module) and (self.only is None or self.only(name, module)):
                self._compute_in_one_pass(name, module)
        self.replacement.rows = [*self.rows.values(), *(row for row in parents if row is not None)]

    def _swap(self, name: str, module: torch.nn.Module) -> None:
        was = _shown(module)
        kind, reason = target(module)
        if kind is not None and self.only is not None and not self.only(name, module):
            kind, reason = None, "`only` leaves it"
        if kind is None:
            self.rows[module] = Row(name, was, was, note=reason)
            return
        if self.fold_norms and has_weight_norm(module):
            self.replacement._changes.append(FoldedNorm(name, module))
        former, own = type(module), own_class(module)
        module.__class__ = exchanged(former, own, kind)
        if issubclass(kind, Chained):
            module.__dict__[NAME] = State()
        self.replacement._changes.append(Change(name, module, bases_of(kind), bases_of(own), former, NAME))
        self.swapped.add(module)
        self.rows[module] = Row(name, was, _shown(module), note=note(module))

    def _may_fold(self, module: torch.nn.Module) -> bool:
        """Whether the module may call convolutions that are swapped."""
        if _calls_functions(module) and self.only is None and not isinstance(module, Folded):
            return True
        called = _callable_convolutions(module)
        is_new = any(one in self.swapped for one in called)
        return bool(called) and (is_new or not isinstance(module, Folded)) and type(module) not in _CONTAINERS

    def _fold(self, name: str, module: torch.nn.Module) -> Row | None:
        own = type(module)._sluice_bases[1] if isinstance(module, Folded) else type(module)
        reason = _why_not(module)
        program = None if reason else Program(module, own.forward)  # type: ignore[attr-defined]
        if program is not None and not program.folded and self._may_pass(name, module, own):
            return None
        if program is None or not program.folded:
            shown = reason or (program.reason if program is not None else "")
            return Row(name, own.__name__, own.__name__, note=shown) if shown else None
        former, then = type(module), module.__dict__.get(ATTRIBUTE)
        try:
            module.__class__ = folded_class(own)
        except TypeError as error:
            return Row(name, own.__name__, own.__name__, note=f"its class cannot change: {error}")
        module.__dict__[ATTRIBUTE] = program
        ours = bases_of(type(module))
        self.replacement._changes.append(Change(name, module, ours, bases_of(former), former, ATTRIBUTE, then))
        for path, chains in program.folded:
            if path:
                part = module.get_submodule(path)
                wrapper = wrapper_of(part)
                self._note(part if wrapper is None else part.get_submodule(wrapper.path), chains)
        functions = "; ".join(dict.fromkeys(text for path, text in program.folded if not path))
        return Row(name, own.__name__, f"{own.__name__}, folded", functions, program.reason)

    def _may_pass(self, name: str, module: torch.nn.Module, own: type) -> bool:
        """Makes the module a convolution wrapper, if it can be one."""
        if len(_callable_convolutions(module)) != 1:
            return False
        try:
            wrapper = ConvWrapper(module, own.forward)  # type: ignore[attr-defined]
            former, module.__class__ = type(module), wrapping_class(own)
        except (Refused, TypeError):
            return False
        module.__dict__[WRAPPER] = wrapper
        ours = bases_of(type(module))
        self.replacement._changes.append(Change(name, module, ours, bases_of(former), former, WRAPPER))
        return True

    def _compute_in_one_pass(self, name: str, module: torch.nn.Module) -> None:
        former = type(module)
        try:
            module.__class__ = one_pass_class(module)
        except TypeError:  # a class with slots of its own
            return
        ours = bases_of(type(module))
        self.replacement._changes.append(Change(name, module, ours, bases_of(former), former))
        self.rows[module] = Row(name, former.__name__, f"{former.__name__}, one pass")

    def _note(self, module: torch.nn.Module, folded: str) -> None:
        row = self.rows.get(module)
        if row is not None and folded not in row.folded.split("; "):
            self.rows[module] = dataclasses.replace(row, folded="; ".join(filter(None, (row.folded, folded))))


def _in_chains(modules: Iterable[torch.nn.Module]) -> set[torch.nn.Module]:
    """The chains that folded forwards compute in convolutions."""
    found: set[torch.nn.Module] = set()
    for module in modules:
        program = module.__dict__.get(ATTRIBUTE)
        if isinstance(module, Folded) and program is not None:
            found.update(submodule(module, path) for way in program.ways.values() for path, _ in way.watched)
    return found


def _calls_functions(module: torch.nn.Module) -> bool:
    """Whether the forward of its class names a convolution of torch.nn.functional."""
    own = type(module)
    code = getattr(getattr(own, "forward", None), "__code__", None)
    if code is None or own.__module__.startswith(("torch.", "sluice.")) or own_class(module) in OURS:
        return False
    return not NAMES.isdisjoint(code.co_names)


def _callable_convolutions(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Convolutions of ours among the children and in lists of them."""
    found: list[torch.nn.Module] = []
    for child in module._modules.values():
        if isinstance(child, _CONTAINERS):
            found.extend(_callable_convolutions(child))
        elif child is not None and (own_class(child) in OURS or wrapper_of(child) is not None):
            found.append(child)
    return found


def _why_not(module: torch.nn.Module) -> str:
    """Why a parent's forward is not traced."""
    if "forward" in module.__dict__:
        return "its forward has been replaced"
    if parametrize.is_parametrized(module):
        return "it is parametrised itself"
    if isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule)):
        return "its forward is generated"
    hooked = [one for one in _callable_convolutions(module) if has_other_hooks(one)]
    if hooked and len(hooked) == len(_callable_convolutions(module)):
        return "hooks would see different values"
    return ""


def _shown(module: torch.nn.Module) -> str:
    own = own_class(module)
    name = own.__name__
    if own in OURS and own.__module__.startswith("sluice.nn"):
        name = f"sluice.nn.{name}"
    elif own in OURS:
        name = "sluice.filter2d"
    if isinstance(module, Causal):
        name = f"{own.__name__} on sluice.nn.Conv1d"
    return name + (", parametrised" if own is not type(module) else "")
