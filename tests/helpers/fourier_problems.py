"""Long depthwise convolutions by transforms in float64, and rows that no word is aligned to."""

from __future__ import annotations

import torch


def columns_of_wider(x: torch.Tensor) -> torch.Tensor:
    """Unaligned rows, each at another offset, with NaN around them."""
    wide = x.new_full((x.shape[0], x.shape[1] + 3, x.shape[2] + 5), float("nan"))
    inner = wide[:, 2 : 2 + x.shape[1], 3 : 3 + x.shape[2]]
    inner.copy_(x)
    return inner


def exact(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, padding: int) -> torch.Tensor:
    """The result in float64, by transforms in float64, whose error is far below every tolerance."""
    taps, multiplier = w.shape[-1], w.shape[0] // x.shape[1]
    results = x.shape[-1] + 2 * padding - taps + 1
    points = x.shape[-1] + 2 * padding
    padded = torch.nn.functional.pad(x.double(), (padding, padding)).repeat_interleave(multiplier, 1)
    spectrum = torch.fft.rfft(padded) * torch.fft.rfft(w[:, 0].double(), points).conj()
    sums = torch.fft.irfft(spectrum, points)[..., :results]
    return sums if b is None else sums + b.double()[:, None]
