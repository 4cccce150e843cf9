"""`replace` and what it returns."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..nn.chained import Chained
from ..nn.state import NAME, State
from .changes import Change
from .classes import OURS, Causal, bases_of, derived, exchanged, is_convolution, own_class, target
from .entry import Entry, Folding, entry_of
from .norms import KeptNorm, keep_norms
from .padding import Padded, padded_class
from .parents import parents
from .table import Row, table

Only = Callable[[str, torch.nn.Module], bool]


class Replacement:
    """The changes that `sluice.replace` made to a model, and their undoing. `print` shows them as a table.

    A copy of a model with its replacement, as by `copy.deepcopy((model, replacement))`, undoes the changes of the copy.

    Attributes:
        model: the model, the same object that was given.

    Example:
        >>> import torch, sluice
        >>> model = torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Conv1d(8, 8, 3, groups=8)).eval()
        >>> replacement = sluice.replace(model).trace(torch.zeros(1, 8, 5))
        >>> [(row.module, row.now, row.folded) for row in replacement.rows]
        [('1', 'sluice.nn.Conv1d', 'pre: tanh()')]
        >>> replacement.undo()
        Sequential(
          (0): Tanh()
          (1): Conv1d(8, 8, kernel_size=(3,), stride=(1,), groups=8)
        )
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self._rows: list[Row] = []
        self._changes: list[Change | KeptNorm | EntryChange] = []

    @property
    def rows(self) -> list[Row]:
        """A `Row` for each convolution, and for each module with CUDA graphs. Both tell of calls that were made."""
        notes = self._notes()
        rows = [_with_notes(row, notes.pop(row.module, [])) for row in self._rows]
        rows += [_with_notes(Row(name, "function", "function"), found) for name, found in notes.items()]
        return rows + [
            row for name, module in self.model.named_modules() if (row := _captures(name, module)) is not None
        ]

    def trace(self, *args: Any, **kwargs: Any) -> Replacement:
        """Calls the model with these arguments and without gradients, so that it is folded and `rows` are complete."""
        with torch.no_grad():
            self.model(*args, **kwargs)
        return self

    def undo(self) -> torch.nn.Module:
        """Restores every module's class and calls. Returns the model.

        A parametrization that was registered since stays. A warning names each module that is left as it is, because
        others made it into what cannot be reverted. A second call does nothing but for such modules.
        """
        left: list[Change | KeptNorm | EntryChange] = []
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

    def _notes(self) -> dict[str, list[Any]]:
        """What became of convolutions in the graphs that ran, by the name of their module or weight."""
        names = {id(one): name for name, one in (*self.model.named_parameters(), *self.model.named_buffers())}
        for row in self._rows:
            part = self.model.get_submodule(row.module)
            names.update({id(one): row.module for one in part.parameters()})
        found: dict[str, list[Any]] = {}
        for module in self.model.modules():
            entry = entry_of(module)
            for weight, note in () if entry is None or entry.graphs is None else entry.graphs.notes:
                if (name := names.get(id(_attribute(module, weight)))) is not None and note not in found.setdefault(
                    name, []
                ):
                    found[name].append(note)
        return found


def _attribute(module: torch.nn.Module, path: str) -> object:
    """The module's parameter of that name; None if there is none now."""
    try:
        return functools.reduce(getattr, path.split("."), module)
    except AttributeError:
        return None


@dataclasses.dataclass
class EntryChange:
    """The entry of a module, and the entry before it."""

    name: str
    entry: Entry
    former: Entry | None

    def undo(self) -> None:
        """Reverts it, unless others made an entry since."""
        if entry_of(self.entry.module) is self.entry:
            self.entry.remove()
            if self.former is not None:
                self.former.put()


def replace(
    model: torch.nn.Module,
    *,
    only: Only | None = None,
    fold: bool = True,
    cuda_graphs: bool = False,
    dry_run: bool = False,
) -> Replacement:
    """Swaps a model's convolutions for sluice's, in place, and folds the activations around them into their chains.

    Modules stay the same objects: names, hooks, parameters and `state_dict` keys stay. Where sluice's kernels compute a
    module's convolution, its class becomes sluice's: `nn.Conv1d`, `nn.ConvTranspose1d`, depthwise `nn.Conv2d`, and
    causal convolutions of transformers. At the first call that wants no gradient torch's Dynamo traces the model, or
    its modules with at least half convolutions among their parts, or with a `forward` that calls a convolution as a
    function. A trace takes seconds and is for all lengths; up to three traces are for a single length. The pointwise
    ops around convolutions become their chains. What Dynamo cannot trace runs as before.

    Args:
        model: any module. It may be in training mode, and it still trains.
        only: takes a convolution's name and the module, and says whether it may be swapped and folded.
        fold: whether calls are traced; else classes are swapped alone.
        cuda_graphs: whether traced calls on a GPU are captured at the second call with their shapes, and then
            replayed; at most 16 captures. Inputs are copied in, and results are new tensors. Calls that draw random
            numbers, write to an input or return an input's memory run as before. During a capture torch lets no other
            thread draw random numbers on the GPU.
        dry_run: whether only the table is made; the model does not change.

    Returns:
        A `Replacement`; its `undo()` restores the model.

    Raises:
        TypeError: `model` is no module, or `only` is no function.

    Example:
        >>> import torch, sluice
        >>> conv = torch.nn.Conv1d(4, 4, 3, groups=4)
        >>> model = torch.nn.Sequential(torch.nn.LeakyReLU(0.1), conv, torch.nn.Tanh()).eval()
        >>> replacement = sluice.replace(model).trace(torch.zeros(1, 4, 9))
        >>> print(replacement)
        module  was     is now            folded                              why not
        1       Conv1d  sluice.nn.Conv1d  pre: leaky_relu(0.1), post: tanh()
        >>> type(replacement.undo()[1])
        <class 'torch.nn.modules.conv.Conv1d'>
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"replace: model must be a torch.nn.Module, got {type(model).__name__}")
    if only is not None and not callable(only):
        raise TypeError(f"replace: only must be a function of a name and a module, got {type(only).__name__}")
    replacement = Replacement(model)
    try:
        _Replacer(replacement, only).run(fold and not dry_run, cuda_graphs)
    except BaseException:
        replacement.undo()
        raise
    if dry_run:
        replacement.undo()
    return replacement


class _Replacer:
    def __init__(self, replacement: Replacement, only: Only | None) -> None:
        self.replacement, self.only = replacement, only
        self.allowed: dict[str, torch.nn.Module] = {}  # convolutions that may be folded

    def run(self, folds: bool, cuda_graphs: bool) -> None:
        model, changes = self.replacement.model, self.replacement._changes
        for name, module in list(model.named_modules()):
            if is_convolution(module):
                self.replacement._rows.append(self._swap(name, module))
            elif (kind := padded_class(module)) is not None:
                self._pad(name, module, kind)
        changes.extend(keep_norms(self.allowed.items()))
        if folds:
            folding = Folding(None if self.only is None else list(self.allowed.values()), cuda_graphs)
            for name, module in parents(model, self.only is None):
                former = entry_of(module)
                is_less = former is not None and former.folding.convolutions is not None and self.allowed
                if former is None or is_less or (cuda_graphs and not former.folding.cuda_graphs):
                    changes.append(EntryChange(name, Entry(module, folding), former))

    def _swap(self, name: str, module: torch.nn.Module) -> Row:
        was = shown(module)
        if self.only is not None and not self.only(name, module):
            return Row(name, was, was, note="`only` leaves it")
        self.allowed[name] = module
        kind, reason = target(module)
        if kind is None:
            return Row(name, was, was, note=reason)
        former, own = type(module), own_class(module)
        module.__class__ = exchanged(former, own, kind)
        if issubclass(kind, Chained):
            module.__dict__[NAME] = State()
        self.replacement._changes.append(Change(name, module, bases_of(kind), bases_of(own), former, NAME))
        return Row(name, was, shown(module))

    def _pad(self, name: str, module: torch.nn.Module, kind: type[Padded]) -> None:
        former = type(module)
        module.__class__ = derived(kind, former)
        ours = bases_of(type(module))
        self.replacement._changes.append(Change(name, module, ours, bases_of(former), former))


def shown(module: torch.nn.Module) -> str:
    """The name of a convolution's class in the table."""
    own = own_class(module)
    name = own.__name__
    if own in OURS and own.__module__.startswith("sluice.nn"):
        name = f"sluice.nn.{name}"
    elif own in OURS:
        name = "sluice.filter2d"
    if isinstance(module, Causal):
        name = f"{own.__name__} on sluice.nn.Conv1d"
    return name + (", parametrised" if own is not type(module) else "")


def _captures(name: str, module: torch.nn.Module) -> Row | None:
    """The row of a module whose calls may be CUDA graphs."""
    entry = entry_of(module)
    found = None if entry is None or entry.graphs is None else entry.graphs.cuda_graphs
    if found is None:
        return None
    own = type(module).__name__
    return Row(name, own, f"{own}, {len(found)} CUDA graphs", note="; ".join(found.reasons))


def _with_notes(row: Row, notes: list[Any]) -> Row:
    """The row with what became of the convolution in graphs."""
    if not notes:
        return row
    folded = "; ".join(dict.fromkeys(note.chains for note in notes if note.chains))
    is_sluices = any(not note.reason for note in notes)
    reasons = "; ".join(dict.fromkeys(note.reason for note in notes if note.reason))
    return dataclasses.replace(row, folded=folded, note="" if is_sluices else reasons)
