"""What `replace` changed in a module, as data: `undo` reverts it, and copies of a `Replacement` follow it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .classes import attributes_of, exchanged, of_bases


@dataclasses.dataclass
class Change:
    """A module's class, and the attribute that came with it.

    Attributes:
        name: the module's name in the model.
        module: the module.
        ours: the class of ours, by its bases.
        theirs: the class that ours took the place of, by its bases.
        former: the module's class before; others than `theirs` if it was parametrised.
        attribute: the attribute's name.
        value: the attribute's value before; None if there was none.
    """

    name: str
    module: torch.nn.Module
    ours: tuple[type, ...]
    theirs: tuple[type, ...]
    former: type
    attribute: str = ""
    value: Any = None

    def undo(self) -> None:
        """Reverts it. Parametrizations and other classes that were made of ours since stay.

        Raises:
            TypeError: a class that was made of ours cannot be made without it. Then nothing is reverted.
        """
        module, own, ours = self.module, self.module.__dict__, of_bases(*self.ours)
        is_ours = issubclass(type(module), ours)
        if is_ours:
            kind = exchanged(type(module), ours, of_bases(*self.theirs))
            module.__class__ = self.former if _is_same(kind, self.former) else kind
        own.pop(self.attribute, None)
        if is_ours and self.value is not None:
            own[self.attribute] = self.value


def _is_same(kind: type, former: type) -> bool:
    return kind is former or (kind.__bases__ == former.__bases__ and attributes_of(kind) == attributes_of(former))
