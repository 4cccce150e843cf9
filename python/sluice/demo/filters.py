"""The band-pass filter of the demo's first job."""

from __future__ import annotations

import torch


def band_pass(taps: int, low: float, high: float, rate: float) -> torch.Tensor:
    """The taps of a linear-phase band-pass filter, `h[n] = (2 f2 sinc(2 f2 n) - 2 f1 sinc(2 f1 n)) w[n]`.

    The f are the edges over the rate, w is a Hamming window: it leaves about -53 dB beyond the band, and edges that
    are 3.3 * rate / taps wide.

    Args:
        taps: an odd count, so that the filter delays by a whole number of samples.
        low: the lower edge in hertz, where the gain is one half.
        high: the upper edge in hertz, likewise.
        rate: samples per second.

    Returns:
        (taps,), float64, symmetric, so convolving and correlating with it are the same.

    Raises:
        ValueError: an even count of taps, or edges that do not increase between 0 and half the rate.

    Example:
        >>> from sluice.demo.filters import band_pass
        >>> band_pass(255, 300.0, 3400.0, 16000.0).shape
        torch.Size([255])

    Source: Oppenheim and Schafer, "Discrete-Time Signal Processing", the window method.
    """
    if taps < 1 or taps % 2 == 0:
        raise ValueError(f"band_pass: taps must be odd, got {taps}")
    if not 0 < low < high < rate / 2:
        raise ValueError(f"band_pass: edges must be increasing between 0 and {rate / 2:g} Hz, got {low:g} and {high:g}")
    n = torch.arange(taps, dtype=torch.float64) - taps // 2
    window = torch.hamming_window(taps, periodic=False, dtype=torch.float64)
    lower, upper = 2 * low / rate, 2 * high / rate
    return (upper * torch.sinc(upper * n) - lower * torch.sinc(lower * n)) * window
