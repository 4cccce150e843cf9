"""Results of `fn`: a tensor, or a tuple, list or dict of tensors, flattened and rebuilt."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Structure:
    """How tensors were held together: by `kind`, a dict with `keys`; `kind` is Tensor for a single tensor."""

    kind: type
    keys: tuple[Hashable, ...] = ()
    count: int = 1

    def rebuild(self, tensors: Sequence[Any]) -> Any:
        """The same structure around other tensors."""
        if self.kind is torch.Tensor:
            return tensors[0]
        if issubclass(self.kind, dict):
            return dict(zip(self.keys, tensors, strict=True))
        if issubclass(self.kind, tuple) and hasattr(self.kind, "_fields"):
            return self.kind(*tensors)
        return list(tensors) if issubclass(self.kind, list) else tuple(tensors)

    def name(self, index: int) -> str:
        """The suffix that names a tensor in messages: "", "[1]" or "['left']"."""
        if self.kind is torch.Tensor:
            return ""
        return f"[{self.keys[index]!r}]" if self.keys else f"[{index}]"


def flatten(value: Any) -> tuple[list[torch.Tensor], Structure] | None:
    """The tensors of `value` and their structure; None if `value` holds anything else."""
    if isinstance(value, torch.Tensor):
        return [value], Structure(torch.Tensor)
    if isinstance(value, dict):
        tensors, structure = list(value.values()), Structure(type(value), tuple(value), len(value))
    elif isinstance(value, (tuple, list)):
        tensors, structure = list(value), Structure(type(value), (), len(value))
    else:
        return None
    return (tensors, structure) if all(isinstance(tensor, torch.Tensor) for tensor in tensors) else None


def describe(value: Any) -> str:
    """The kind of `value`, for messages."""
    if isinstance(value, (tuple, list, dict)):
        held = value.values() if isinstance(value, dict) else value
        kinds = sorted({type(item).__name__ for item in held if not isinstance(item, torch.Tensor)})
        return f"a {type(value).__name__} with {', '.join(kinds)}"
    return type(value).__name__


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One tensor of a result of `fn`; for a map, from the first chunk."""

    dtype: torch.dtype
    sizes: tuple[int, ...]  # of the first chunk, without its halo
    dim: int

    def with_extent(self, extent: int) -> list[int]:
        """The shape with another extent along `dim`."""
        sizes = list(self.sizes)
        sizes[self.dim] = extent
        return sizes
