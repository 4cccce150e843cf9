"""A vocoder made faster by one line: SpeechT5's HiFi-GAN from transformers before and after `sluice.replace(model)`.

    python examples/vocoder.py [--frames N] [--output vocoder.png]

Weights are random, so what comes out is no voice, but it has the recording's pauses, and both spectrograms are the
same. It needs the source tree, whose demo it uses, transformers, and matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import time

import torch

import sluice
from sluice.demo.recording import Recording, find_recording, read_wav
from sluice.demo.vocoder import RATE, draw_spectrograms, mel_frames, vocoder


def milliseconds(model: torch.nn.Module, x: torch.Tensor) -> float:
    """The median time of a call, after two that allocate and pick algorithms."""
    times = []
    for _ in range(2 + (20 if x.is_cuda else 3)):
        begin = time.perf_counter()
        model(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[2:])


def main() -> int:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=860 if on_gpu else 64, help="of 16 ms each (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("vocoder.png"), help="%(default)s")
    given = parser.parse_args()

    device, dtype, batch = ("cuda", torch.float16, 8) if on_gpu else ("cpu", torch.float32, 1)
    model = vocoder().to(device, dtype)  # SpeechT5HifiGan; from_pretrained(...) would have trained weights
    x = mel_frames(read_wav(find_recording()), batch, given.frames).to(device, dtype)

    with torch.inference_mode():
        before, before_ms = model(x), milliseconds(model, x)
        replacement = sluice.replace(model)  # the one line
        after, after_ms = model(x), milliseconds(model, x)
    print(replacement)

    difference = float((after.double() - before.double()).norm() / before.double().norm())
    is_same = difference < (1e-2 if on_gpu else 1e-5)
    print(f"{batch} x {given.frames} frames, {dtype} on {device}: {before_ms:.4g} ms before, {after_ms:.4g} ms after")
    print(f"relative difference {difference:.1e}:", "the same" if is_same else "DIFFERENT")
    sounds = [Recording(y[0].float().cpu(), RATE) for y in (before, after)]
    speed = f"{before_ms / after_ms:.2f}x as fast"
    title = f"SpeechT5HifiGan, {batch} x {given.frames} frames, {dtype} on {device}: {speed}"
    try:
        draw_spectrograms(given.output, *sounds, title, [before_ms, after_ms])
        print(f"picture: {given.output}")
    except ImportError as error:
        print(f"no picture: it needs matplotlib ({error})")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
