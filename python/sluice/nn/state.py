"""The state of a module of ours: a single attribute, so that a module's owner may use every other name."""

from __future__ import annotations

from typing import Any

from .kept import Kept
from .repeated import LastCall

NAME = "_sluice"


class State:
    """What sluice keeps on a module. Copies and pickles keep the names of the chains alone.

    Attributes:
        chains: names of the attributes that hold the module's chains. A module that `sluice.replace` swapped has
            none: its `pre` and `post`, if there are any, are its owner's.
        last: its last call.
        packed: its weight as the tensor-core kernels read it.
    """

    last: LastCall
    packed: Kept

    def __init__(self, chains: tuple[str, ...] = ()) -> None:
        self.chains = chains
        self.reset()

    def reset(self) -> None:
        """Forgets what belongs to the module's device."""
        self.last, self.packed = LastCall(), Kept()

    def __reduce__(self) -> tuple[type[State], tuple[Any, ...]]:
        return State, (self.chains,)

    def __deepcopy__(self, memo: object) -> State:
        return State(self.chains)
