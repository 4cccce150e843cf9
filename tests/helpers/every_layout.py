"""Every layout of an input, for the tests that compare what is promised with what is returned."""

from __future__ import annotations

import itertools

import torch

SHAPES = {3: (2, 4, 6), 4: (2, 3, 5, 6)}
# Sides of one element and of none: of the batch, the channels and the positions.
DEGENERATE = {
    3: [(1, 4, 6), (2, 1, 6), (2, 4, 1), (1, 1, 1), (0, 4, 6), (2, 4, 0)],
    4: [(1, 3, 5, 6), (2, 1, 5, 6), (2, 3, 1, 6), (2, 3, 5, 1), (2, 3, 1, 1), (0, 3, 5, 6), (2, 3, 0, 6), (2, 3, 5, 0)],
}


def layouts(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """A float32 tensor of `shape` on the CPU in every layout, by name; place it by `laid_out_like`."""
    rank = len(shape)
    found: dict[str, torch.Tensor] = {}
    for order in itertools.permutations(range(rank)):
        back = [order.index(d) for d in range(rank)]
        found[f"dense {order}"] = torch.empty([shape[d] for d in order]).permute(back)
    wide = [size * 3 + 1 for size in shape]
    for d in range(rank):
        whole = torch.empty([*shape[:d], wide[d], *shape[d + 1 :]])
        found[f"sliced {d}"] = whole.narrow(d, 1, shape[d])
        found[f"stepped {d}"] = whole.movedim(d, -1)[..., 1::3].movedim(-1, d).narrow(d, 0, shape[d])
        found[f"expanded {d}"] = torch.empty([*shape[:d], 1, *shape[d + 1 :]]).expand(shape)
    # Channels-last slices of longer rows of channels; and expanded from one element.
    longer = torch.empty([*shape[: 1 - rank], *shape[2:], shape[1] + 14])[..., 11 : 11 + shape[1]]
    found["part of channels-last"] = longer.movedim(-1, 1)
    found["one element"] = torch.empty(()).expand(shape)
    found["offset"] = torch.empty(max(1, torch.Size(shape).numel()) + 1)[1 : 1 + torch.Size(shape).numel()].view(shape)
    if 1 in shape:
        # Dimensions of one element may have any stride.
        strides = [stride if size != 1 else 99 for size, stride in zip(shape, torch.empty(shape).stride(), strict=True)]
        found["free strides"] = torch.empty(400).as_strided(shape, strides)
    return found


def laid_out_like(layout: torch.Tensor, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random numbers (a uint8's from 0 to 255) in the layout of a tensor that `layouts` made."""
    reach = 1 + sum(max(0, size - 1) * stride for size, stride in zip(layout.shape, layout.stride(), strict=True))
    storage = torch.randn(layout.storage_offset() + reach, device=device)
    storage = (storage * 50).abs().to(dtype) if dtype == torch.uint8 else storage.to(dtype)
    return storage.as_strided(layout.shape, layout.stride(), layout.storage_offset())
