"""Results of `fn`: a tensor or a pytree of tensors, flattened and rebuilt."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclasses.dataclass(frozen=True)
class Structure:
    """A pytree's nesting; `spec` is None for a single tensor.

    Attributes:
        spec: torch's description of it.
        names: what follows the whole's name to name a tensor, such as "[1]['left']"; "" for a single tensor.
    """

    spec: Any = None
    names: tuple[str, ...] = ("",)

    @property
    def is_flat(self) -> bool:
        """Whether it is a tensor, or a tuple or a list of tensors: positions name them."""
        return self.spec is None or self.names == tuple(f"[{i}]" for i in range(len(self.names)))

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The same structure around other tensors."""
        return tensors[0] if self.spec is None else pytree.tree_unflatten(list(tensors), self.spec)

    def arrange(self, tensors: list[torch.Tensor], other: Structure) -> list[torch.Tensor] | None:
        """The tensors of the `other` structure in this structure's order; None if `other` has other keys or tensors.

        Two dicts may differ in the order of their keys.
        """
        if self.names == other.names:
            return tensors
        by_name = dict(zip(other.names, tensors, strict=True))
        return [by_name[name] for name in self.names] if by_name.keys() == set(self.names) else None


_SINGLE = Structure()


def flatten(value: Any, usual: Structure | None = None) -> tuple[list[torch.Tensor], Structure] | None:
    """The tensors of `value` and their structure, probably the `usual` one; None if `value` holds anything else."""
    if isinstance(value, torch.Tensor):
        return [value], _SINGLE
    leaves, spec = pytree.tree_flatten(value)
    if spec.is_leaf() or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return None
    if usual is not None and usual.spec == spec:
        return leaves, usual
    paths = [path for path, _ in pytree.tree_flatten_with_path(value)[0]]
    return leaves, Structure(spec, tuple(map(pytree.keystr, paths)))


def describe(value: Any) -> str:
    """The kind of `value`, for messages."""
    leaves, spec = pytree.tree_flatten(value)
    if spec.is_leaf():
        return type(value).__name__
    kinds = sorted({type(leaf).__name__ for leaf in leaves if not isinstance(leaf, torch.Tensor)})
    return f"a {type(value).__name__} with {', '.join(kinds)}"


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One tensor of a result of `fn`; for a map, from the first chunk."""

    dtype: torch.dtype
    sizes: tuple[int, ...]  # sizes of the first chunk's result, without the halo
    dim: int

    def with_extent(self, extent: int) -> list[int]:
        """The shape with another extent along `dim`."""
        sizes = list(self.sizes)
        sizes[self.dim] = extent
        return sizes
