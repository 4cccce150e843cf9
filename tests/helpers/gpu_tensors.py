"""Tensors on a GPU: random tensors, indices, and parts of wider memory that a test looks at afterwards."""

from __future__ import annotations

from typing import Any

import torch

from common import NAN

DEVICE = "cuda"


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).to(dtype)


def index(values: Any, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def placed(sizes: tuple[int, int, int], layout: str, offset: int, gap: int, fill: float, dtype) -> torch.Tensor:
    """A part of a wider tensor of `fill`: `offset` elements after a word boundary, and `gap` after each row."""
    batch, channels, length = sizes
    rows = (batch, channels, length + gap) if layout == "cf" else (batch, length, channels + gap)
    count = rows[0] * rows[1] * rows[2]
    wide = torch.full((count + offset,), fill, device=DEVICE, dtype=dtype)[offset:].view(rows)
    return wide[..., :length] if layout == "cf" else wide[..., :channels].transpose(1, 2)


def _anywhere(rows: torch.Tensor) -> torch.Tensor:
    """Rows at any alignment and distance, with NaN between and around them."""
    batch, count, width = rows.shape
    pitch = width + (0, 0, 1, 2, 5)[int(torch.randint(5, ()))]
    first, elements = 64 + int(torch.randint(8, ())), batch * count * pitch
    wide = rows.new_full((first + elements + 64,), NAN)[first : first + elements].view(batch, count, pitch)
    return wide[..., :width].copy_(rows)


def rows_anywhere(x: torch.Tensor) -> torch.Tensor:
    return _anywhere(x)


def positions_anywhere(x: torch.Tensor) -> torch.Tensor:
    """The same channels-last."""
    return _anywhere(x.mT).mT


def around(part: torch.Tensor) -> torch.Tensor:
    """All of the memory around `part`."""
    return torch.as_strided(part, (part.untyped_storage().nbytes() // part.itemsize,), (1,), 0)
