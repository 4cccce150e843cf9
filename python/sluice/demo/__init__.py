"""`python -m sluice demo`: runs sluice on a recording, checked against torch and timed against it.

If transformers is installed, a whole model before and after `sluice.replace(model)`; then three jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys

import torch

from .._library import cuda_unavailable_reason, instruction_set
from . import vocoder
from .extractor import RECEPTIVE_FIELD
from .jobs import filtered, load_for, run_jobs
from .picture import draw
from .recording import Recording, find_recording, read_wav
from .table import format_table

__all__ = ["main"]

_LONGEST, _QUICK = 10.0, 1.0  # seconds of the recording that are used


def main(argv: list[str] | None = None) -> int:
    """Runs a vocoder and three jobs with sluice and with torch, prints a table and draws a picture of each.

    Args:
        argv: the command line without the program's name; None takes the process's own.

    Returns:
        The exit code: 0 if all results are right, 1 if one is wrong, 2 if the demo cannot run.

    Example:
        >>> from sluice import demo
        >>> demo.main(["--audio", "missing.wav"])
        2
    """
    arguments = _parser().parse_args(argv)
    try:
        device = _device(arguments.device)
        path = arguments.audio or find_recording()
        recording = _usable(read_wav(path), path, _QUICK if arguments.quick else _LONGEST)
    except (OSError, ValueError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2

    where = "" if device.type == "cuda" else f"; CPU with {torch.get_num_threads()} threads, {instruction_set()}"
    print(f"{path}: {recording.seconds:.1f} s at {recording.rate} Hz{where}", flush=True)
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        vocoded = _vocoded(recording, device, quick=arguments.quick)
        rows = run_jobs(recording, load_for(device, quick=arguments.quick))
        after = Recording(filtered(recording, device), recording.rate)
    if vocoded is not None:
        print(vocoded.replaced)
        rows.insert(0, vocoded.row)
    print(format_table(rows))
    print("error: relative L2 against torch in float64; ratio: torch's time / sluice's; float32 without TF32")
    wrong = sum(not row.ok for row in rows)
    if wrong:
        print(f"demo: {wrong} of {len(rows)} results are wrong", file=sys.stderr)
    try:
        path = arguments.output
        if vocoded is not None:
            vocoder.draw(path, vocoded)
            print(f"picture: {path}")
            path = path.with_stem(f"{path.stem}_jobs")
        draw(path, recording, after, rows)
        print(f"picture: {path}")
    except ImportError as error:
        print(f"no picture: it needs matplotlib ({error})")
    except (OSError, ValueError) as error:
        print(f"demo: the picture cannot be written: {error}", file=sys.stderr)
        return 1 if wrong else 2
    return 1 if wrong else 0


def _vocoded(recording: Recording, device: torch.device, *, quick: bool) -> vocoder.Vocoded | None:
    try:
        return vocoder.vocode(recording, device, quick=quick)
    except ImportError as error:
        print(f"no vocoder: it needs transformers ({error})")
        return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sluice demo", description=__doc__)
    parser.add_argument("--audio", type=pathlib.Path, help="a 16-bit WAV file (default: examples/data/speech.wav)")
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("demo.png"), help="the first picture's file"
    )
    parser.add_argument("--device", help="cpu or cuda (default: cuda if there is one)")
    parser.add_argument("--quick", action="store_true", help="one second of the recording, fewer timed runs")
    return parser


def _device(name: str | None) -> torch.device:
    """The device called `name`; without a name, CUDA if available, else the CPU.

    Raises:
        ValueError: there is no such device, or sluice has no kernels for it.
    """
    usable = torch.cuda.is_available() and cuda_unavailable_reason is None
    if name is None:
        return torch.device("cuda", torch.cuda.current_device()) if usable else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device must be cpu or cuda, got {name!r}")
    if device.type == "cpu":
        return device
    if not usable:
        raise ValueError(f"--device {name}: {cuda_unavailable_reason or 'torch finds no CUDA device'}")
    device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
    if device.index >= torch.cuda.device_count():
        raise ValueError(f"--device must be one of {torch.cuda.device_count()} CUDA devices, got {name!r}")
    return device


def _usable(recording: Recording, path: pathlib.Path, seconds: float) -> Recording:
    """The part of the recording that the demo uses.

    Raises:
        ValueError: too short for the extractor, a sample rate too low for the filter's band, or silent.
    """
    if recording.rate <= 6800:
        raise ValueError(
            f"{path} must have more than 6800 samples per second for a band up to 3400 Hz, got {recording.rate}"
        )
    part = recording.first(seconds)
    if part.samples.numel() < RECEPTIVE_FIELD:
        raise ValueError(f"{path} must have at least {RECEPTIVE_FIELD} samples, got {part.samples.numel()}")
    if not part.samples.any():
        raise ValueError(f"{path} must not be silent in its first {part.seconds:.1f} s")
    return part
