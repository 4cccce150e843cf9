"""The demo's three jobs: a long filter, a feature extractor, a chain of stages."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from .. import stages
from ..conv1d import conv1d
from ..transform import transform
from .extractor import SluiceExtractor, TorchExtractor
from .filters import band_pass
from .measure import Row, measure
from .recording import Recording

TAPS, LOW, HIGH = 255, 300.0, 3400.0  # the band of a telephone line

# A float32 feature passes seven layers of sums of up to 1536 terms; each layer takes over the error of the last.
_LAYERED = 10.0


@dataclasses.dataclass(frozen=True)
class Load:
    """The amount of work of each job.

    Attributes:
        device: where it runs.
        dtypes: each job runs once per dtype.
        batch: copies of the recording at different levels, for the filter and the chain with `channels` each.
        channels: see `batch`.
        repeats: timed runs.
    """

    device: torch.device
    dtypes: tuple[torch.dtype, ...]
    batch: int
    channels: int
    repeats: int


def load_for(device: torch.device, *, quick: bool = False) -> Load:
    """Enough work to fill a GPU, or little enough for two CPU cores; `quick` times fewer runs."""
    if device.type == "cuda":
        dtypes = (torch.float32, torch.float16, torch.bfloat16)
        return Load(device, dtypes, batch=8, channels=32, repeats=5 if quick else 25)
    return Load(device, (torch.float32,), batch=1, channels=8, repeats=2 if quick else 7)


def run_jobs(recording: Recording, load: Load) -> list[Row]:
    """All jobs in all dtypes; dense float32 convolutions at full precision, TF32 off."""
    with full_float32(), torch.inference_mode():
        jobs = (_band_pass, _features, _chain)
        return [row for job in jobs for dtype in load.dtypes for row in job(recording, load, dtype)]


@contextlib.contextmanager
def full_float32() -> Iterator[None]:
    """Keeps torch's convolutions from rounding float32 inputs to TF32: those errors would hide a wrong result."""
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def filtered(recording: Recording, device: torch.device) -> torch.Tensor:
    """The recording's band between `LOW` and `HIGH`, (L,)."""
    weight = band_pass(TAPS, LOW, HIGH, recording.rate).float().to(device)
    with torch.inference_mode():
        return conv1d(recording.samples.to(device)[None], weight[None, None], padding="same")[0].cpu()


def _copies(recording: Recording, batch: int, channels: int, load: Load, dtype: torch.dtype) -> torch.Tensor:
    """(batch, channels, L): copies of the recording at distinct levels, from full down to a tenth."""
    levels = torch.logspace(0, -1, batch * channels).view(batch, channels, 1)
    return (levels * recording.samples).to(load.device, dtype)


def _band_pass(recording: Recording, load: Load, dtype: torch.dtype) -> Iterator[Row]:
    x = _copies(recording, load.batch, load.channels, load, dtype)
    taps = band_pass(TAPS, LOW, HIGH, recording.rate).to(load.device, dtype)
    weight = taps.repeat(load.channels, 1, 1)
    yield measure(
        f"band-pass FIR, {TAPS} taps",
        x,
        lambda: conv1d(x, weight, padding="same", groups=load.channels),
        lambda: F.conv1d(x, weight, padding="same", groups=load.channels),
        lambda: F.conv1d(x.double(), weight.double(), padding="same", groups=load.channels),
        repeats=load.repeats,
    )


def _features(recording: Recording, load: Load, dtype: torch.dtype) -> Iterator[Row]:
    samples = recording.samples
    standard = Recording((samples - samples.mean()) / samples.std(), recording.rate)
    x = _copies(standard, load.batch, 1, load, dtype)
    native = TorchExtractor().to(load.device, dtype)
    model = SluiceExtractor().to(load.device, dtype)
    exact = copy.deepcopy(native).double()
    compiled = torch.compile(model, fullgraph=True)
    for name, ours in (("features, eager", model), ("features, compiled", compiled)):
        yield measure(
            name,
            x,
            lambda ours=ours: ours(x),  # type: ignore[misc]
            lambda: native(x),
            lambda: exact(x.double()),
            repeats=load.repeats,
            tolerance=_LAYERED if dtype == torch.float32 else 1.0,
        )


def _chain(recording: Recording, load: Load, dtype: torch.dtype) -> Iterator[Row]:
    """A soft limiter: standardises each channel, saturates, and clamps the rest."""
    x = _copies(recording, load.batch, load.channels, load, dtype)
    mean, scale = x.double().mean((0, 2)).to(dtype)[:, None], (0.5 / x.double().std((0, 2))).to(dtype)[:, None]
    limiter = stages.sub(mean) | stages.mul(scale) | stages.tanh() | stages.scale(1.1) | stages.clamp(-1.0, 1.0)

    def native(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.clamp(torch.tanh((x - mean) * scale) * 1.1, -1.0, 1.0)

    yield measure(
        "chain of 5 stages",
        x,
        lambda: transform(x, limiter),
        lambda: native(x, mean, scale),
        lambda: native(x.double(), mean.double(), scale.double()),
        repeats=load.repeats,
    )
