"""Memory of the suite `stream`, by kind, filled with random numbers: on the host, or "device"."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence

import torch

_PIECE_BYTES = 16 << 20

_locked: dict[str, torch.Tensor] = {}


def pinned(role: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Pinned memory, the same for all rows: pinning takes 0.35 s per GiB. A role has one tensor at a time."""
    nbytes = math.prod(shape) * dtype.itemsize
    if role not in _locked or _locked[role].nbytes < nbytes:
        _locked.pop(role, None)
        _locked[role] = torch.empty(nbytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    return _locked[role][:nbytes].view(dtype).view(*shape)


def _mapped(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    with tempfile.NamedTemporaryFile() as file:  # the mapping outlives the name
        made = torch.from_file(file.name, shared=True, size=math.prod(shape), dtype=dtype)
    return made.view(*shape)


def _strided(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    *outer, columns = shape
    return torch.empty(*outer, columns + 64, dtype=dtype)[..., 3 : 3 + columns]


SOURCES: dict[str, Callable[[Sequence[int], torch.dtype], torch.Tensor]] = {
    "pinned": lambda shape, dtype: pinned("source", shape, dtype),
    "pageable": lambda shape, dtype: torch.empty(*shape, dtype=dtype),
    "mapped file": _mapped,
    "strided pageable": _strided,
}


def random_source(source: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Random numbers, drawn on the device: a core needs a second for each 256 Mi."""
    x = torch.empty(*shape, dtype=dtype, device=device) if source == "device" else SOURCES[source](shape, dtype)
    rows = max(1, _PIECE_BYTES // (math.prod(shape[1:]) * dtype.itemsize))
    for part in x.split(rows):
        drawn = torch.empty(part.shape, dtype=dtype, device=device)
        part.copy_(drawn.normal_() if dtype.is_floating_point else drawn.random_(0, 256))
    return x


def result_like(
    source: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> torch.Tensor:
    """The result's memory: pinned if the source is, else on `device`. NaN: an unwritten element fails the check."""
    out = pinned("result", shape, dtype) if source == "pinned" else torch.empty(*shape, dtype=dtype, device=device)
    return out.fill_(float("nan"))
