"""A whole model before and after `sluice.replace`: SpeechT5's HiFi-GAN on the frames of a recording."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pathlib
from typing import Any

import torch
from torch import nn

from .. import replace
from .jobs import full_float32
from .measure import TOLERANCE, Row, in_float64, measure, relative_error
from .recording import Recording
from .weights import keep_levels

HOP, RATE, BANDS = 256, 16000, 80  # samples a frame, samples a second, mel bands: the model's numbers
_WINDOW = 1024
_LOW, _HIGH = 80.0, 7600.0  # the bands' edges, in hertz
_PROBE = 16  # frames at which weights are scaled


@dataclasses.dataclass(frozen=True)
class Vocoded:
    """The results of a vocoder for one recording.

    Attributes:
        before: the first row of the batch, by torch.
        after: the same row after `sluice.replace`.
        row: the error against float64 and the times, as in the demo's table.
        torch_error: torch's error against float64.
        replaced: the table of replaced modules.
    """

    before: Recording
    after: Recording
    row: Row
    torch_error: float
    replaced: str


def vocoder(*, seed: int = 0, **options: Any) -> nn.Module:
    """The `SpeechT5HifiGan` of transformers in eval mode, with random weights.

    It maps mel frames (B, L, 80) to samples (B, 256 L).

    Args:
        seed: seeds the weights, which keep a signal's level through all layers.
        options: fields of the model's configuration.

    Raises:
        ImportError: transformers is not installed.
    """
    modeling: Any = importlib.import_module("transformers.models.speecht5.modeling_speecht5")
    with torch.random.fork_rng(devices=[]):  # initial values are drawn from torch's own generator
        model: nn.Module = modeling.SpeechT5HifiGan(modeling.SpeechT5HifiGanConfig(**options))
    model.eval().requires_grad_(False)
    frames = torch.randn(1, _PROBE, int(options.get("model_in_dim", BANDS)), generator=torch.Generator().manual_seed(1))
    keep_levels(model, frames, seed=seed)
    return model


def mel_frames(recording: Recording, batch: int, frames: int) -> torch.Tensor:
    """The recording as log-mel frames, (batch, frames, 80): silence is 0, the mean square 1.

    With this scale loud frames give loud samples, whatever the weights. The recording repeats to fill the frames and
    begins at another position in each row of the batch.
    """
    samples = recording.samples
    samples = samples.repeat(-(-frames * HOP // samples.numel()) + 1)[: (frames - 1) * HOP]
    spectrum = torch.stft(samples, _WINDOW, HOP, window=torch.hann_window(_WINDOW), return_complex=True).abs()
    mel = torch.log10(1 + 3 * (mel_filters(recording.rate) @ spectrum))
    mel = mel / mel.square().mean().sqrt()
    return torch.stack([mel.roll(row * frames // batch, dims=1).T for row in range(batch)])


def mel_filters(rate: int, bands: int = BANDS) -> torch.Tensor:
    """Triangles of equal width in mel, (bands, 513): the weights of a spectrum's bins.

    Example:
        >>> from sluice.demo.vocoder import mel_filters
        >>> mel_filters(16000).shape
        torch.Size([80, 513])

    Source: `2595 log10(1 + f / 700)` of O'Shaughnessy, "Speech Communication" (1987).
    """
    low, high = (2595 * torch.log10(torch.tensor(1 + edge / 700)) for edge in (_LOW, min(_HIGH, rate / 2)))
    edges = 700 * (10 ** (torch.linspace(float(low), float(high), bands + 2) / 2595) - 1)
    bins = torch.linspace(0, rate / 2, _WINDOW // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp_min(0)


def vocode(recording: Recording, device: torch.device, *, quick: bool = False, **options: Any) -> Vocoded:
    """Runs the vocoder before and after `sluice.replace`, checks both against float64 and times them.

    Args:
        recording: the input speech.
        device: a GPU gets 8 x 860 frames in float16, the CPU a few in float32.
        quick: fewer timed runs, and on the CPU fewer frames.
        options: fields of the model's configuration.

    Raises:
        ImportError: transformers is not installed.
    """
    on_gpu = device.type == "cuda"
    dtype = torch.float16 if on_gpu else torch.float32
    batch, frames = (8, 860) if on_gpu else (1, 32 if quick else 64)
    native = vocoder(**options).to(device, dtype)
    x = mel_frames(recording, batch, frames).to(device, dtype)
    with full_float32(), torch.inference_mode():
        exact = in_float64(native, x)
        before = native(x)
        torch_error = relative_error(before, exact)
        model = copy.deepcopy(native)
        replacement = replace(model)
        row = measure(
            f"vocoder, {batch} x {frames} frames",
            x,
            lambda: model(x),
            lambda: native(x),
            lambda: exact,
            repeats=(3 if quick else 15) if on_gpu else (1 if quick else 3),
            tolerance=3 * torch_error / TOLERANCE[dtype],  # three times torch's
        )
        after = model(x)
    first, second = (Recording(y[0].float().cpu(), RATE) for y in (before, after))
    return Vocoded(first, second, row, torch_error, str(replacement))


def draw_spectrograms(path: pathlib.Path, before: Recording, after: Recording, title: str, times: list[float]) -> None:
    """Writes the picture: both spectrograms, and below them the two times in milliseconds.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: `path` cannot be written.
        ValueError: matplotlib does not know the format that `path` ends in.
    """
    # Imported by name, so that type checks need no matplotlib, and without pyplot, which may need a display.
    figure_module: Any = importlib.import_module("matplotlib.figure")
    figure = figure_module.Figure(figsize=(10, 7.6), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=[2.3, 2.3, 1.0])
    top = figure.add_subplot(grid[0])
    second = figure.add_subplot(grid[1], sharex=top, sharey=top)
    loudest = float(decibels(before).max())
    for axes, sound, name in ((top, before, "Before: torch"), (second, after, "After sluice.replace(model)")):
        image = axes.imshow(
            decibels(sound).numpy(), origin="lower", aspect="auto", cmap="magma",
            extent=(0, sound.seconds, 0, sound.rate / 2000), vmin=loudest - 80, vmax=loudest,
        )  # fmt: skip
        axes.set_title(name, loc="left")
        axes.set_ylabel("frequency (kHz)")
    top.tick_params(labelbottom=False)
    second.set_xlabel("time (s)")
    figure.colorbar(image, ax=[top, second], label="power (dB)")
    bars = figure.add_subplot(grid[2])
    drawn = bars.barh(["before", "after"], times, color=["#7a8794", "#1f77b4"])
    bars.bar_label(drawn, [f"{ms:.4g} ms" for ms in times], padding=4)
    bars.set_xlim(0, 1.15 * max(times))
    bars.invert_yaxis()
    bars.set_title(title, loc="left")
    bars.set_xlabel("milliseconds a call")
    figure.savefig(path, dpi=120)


def decibels(sound: Recording) -> torch.Tensor:
    """The power of windows of 512 samples, 257 bins a row, in decibels."""
    samples = nn.functional.pad(sound.samples, (0, max(0, 512 - sound.samples.numel())))
    spectrum = torch.stft(samples, 512, 128, window=torch.hann_window(512), center=False, return_complex=True)
    return 10 * torch.log10(spectrum.abs().square() + 1e-10)


def caption(found: Vocoded) -> str:
    """The picture's caption, in two lines."""
    row = found.row
    speed = f"{row.ratio:.2f}x as fast on {row.device}"
    errors = f"error against float64 {found.torch_error:.1e} before, {row.error:.1e} after"
    return f"SpeechT5HifiGan, {row.dtype_name}, {' x '.join(map(str, row.shape[:2]))} frames: {speed}\n{errors}"


def draw(path: pathlib.Path, found: Vocoded) -> None:
    """Writes the picture of a vocoder's run; raises as `draw_spectrograms`."""
    draw_spectrograms(path, found.before, found.after, caption(found), [found.row.torch, found.row.ours])
