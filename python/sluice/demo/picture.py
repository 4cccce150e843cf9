"""The demo's picture: the recording before and after the filter, both spectra, and the ratios."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Sequence
from typing import Any

import torch

from .jobs import HIGH, LOW
from .measure import Row
from .recording import Recording

_BEFORE, _AFTER, _SLOWER = "#7a8794", "#1f77b4", "#c76b29"
_COLUMNS = 1600  # columns of the waveform panels: about one per pixel, from the minimum to the maximum of its samples
_WINDOW = 1024


def draw(path: pathlib.Path, before: Recording, after: Recording, rows: Sequence[Row]) -> None:
    """Writes the picture to `path`.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: `path` cannot be written.
        ValueError: matplotlib does not know the format that `path` ends in.
    """
    # Imported by name, so that type checks need no matplotlib, and without pyplot, which may need a display.
    figure_module: Any = importlib.import_module("matplotlib.figure")
    figure = figure_module.Figure(figsize=(10, 8.2 + 0.3 * len(rows)), layout="constrained")
    grid = figure.add_gridspec(4, 1, height_ratios=[1.6, 1.6, 2.2, 0.9 + 0.3 * len(rows)])
    top = figure.add_subplot(grid[0])
    second = figure.add_subplot(grid[1], sharex=top, sharey=top)
    _waveform(top, before, _BEFORE, "Recording")
    _waveform(second, after, _AFTER, f"After the band-pass, {LOW:g} to {HIGH:g} Hz")
    top.tick_params(labelbottom=False)
    second.set_xlabel("time (s)")
    _spectra(figure.add_subplot(grid[2]), before, after)
    _ratios(figure.add_subplot(grid[3]), rows)
    figure.savefig(path, dpi=120)


def _waveform(axes: Any, recording: Recording, colour: str, title: str) -> None:
    step = max(1, recording.samples.numel() // _COLUMNS)
    blocks = recording.samples[: recording.samples.numel() // step * step].view(-1, step)
    seconds = [(i + 0.5) * step / recording.rate for i in range(len(blocks))]
    axes.fill_between(seconds, blocks.amin(1).tolist(), blocks.amax(1).tolist(), color=colour, linewidth=0.4)
    axes.set_title(title, loc="left")
    axes.set_ylabel("amplitude")
    axes.set_xlim(0, recording.seconds)
    axes.grid(alpha=0.3)


def power(recording: Recording) -> torch.Tensor:
    """The mean power spectrum of windows of `_WINDOW` samples, `_WINDOW / 2 + 1` bins, zero to half the rate."""
    samples = torch.nn.functional.pad(recording.samples, (0, max(0, _WINDOW - recording.samples.numel())))
    window = torch.hann_window(_WINDOW)
    spectrum = torch.stft(samples, _WINDOW, window=window, center=False, return_complex=True)
    return spectrum.abs().square().mean(-1)


def _spectra(axes: Any, before: Recording, after: Recording) -> None:
    frequencies = torch.linspace(0, before.rate / 2000, _WINDOW // 2 + 1).tolist()
    reference = power(before).max()
    for recording, colour, label in ((before, _BEFORE, "before"), (after, _AFTER, "after")):
        decibels = 10 * torch.log10(power(recording) / reference + 1e-12)
        axes.plot(frequencies, decibels.tolist(), color=colour, label=label)
    axes.axvspan(LOW / 1000, HIGH / 1000, color=_AFTER, alpha=0.08, linewidth=0, label="pass band")
    axes.set(xlim=(0, before.rate / 2000), ylim=(-100, 20), xlabel="frequency (kHz)", ylabel="power (dB)")
    axes.set_title("Spectra", loc="left")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", ncols=3)  # in the space above 0 dB


def _ratios(axes: Any, rows: Sequence[Row]) -> None:
    """Bars from 1 to each ratio on a logarithmic axis: twice as fast and half as fast are equally long."""
    ratios = [row.ratio for row in rows]
    bars = axes.barh(
        [f"{row.job}, {row.dtype_name}" for row in rows],
        [ratio - 1 for ratio in ratios],
        left=1.0,
        color=[_AFTER if ratio >= 1 else _SLOWER for ratio in ratios],
    )
    for bar, row in zip(bars, rows, strict=True):
        place = max(row.ratio, 1.0) * 1.03
        text = f"{row.ratio:.{2 if row.ratio < 10 else 1}f}x" if row.ok else "WRONG"
        axes.text(place, bar.get_y() + bar.get_height() / 2, text, va="center")
    low, high = min([0.5, *ratios]), max([2.0, *ratios])
    ticks = [tick for tick in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200) if low * 0.7 <= tick <= high * 1.4]
    axes.set_xscale("log")
    axes.set_xlim(low * 0.8, high * 1.5)  # room for the longest bar's number
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.margins(y=0.02)
    axes.invert_yaxis()  # the table's order, top to bottom
    axes.set_title(f"Torch's time / sluice's time on {rows[0].device}", loc="left")
    axes.set_xlabel("ratio, logarithmic: right of 1, sluice is faster")
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
