"""Finds and reads the recording that the demo uses."""

from __future__ import annotations

import dataclasses
import pathlib
import wave

import torch

_DEFAULT = pathlib.Path("examples", "data", "speech.wav")


@dataclasses.dataclass(frozen=True)
class Recording:
    """One channel of sound.

    Attributes:
        samples: (L,), float32 between -1 and 1.
        rate: samples per second.
    """

    samples: torch.Tensor
    rate: int

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return self.samples.numel() / self.rate

    def first(self, seconds: float) -> Recording:
        """The beginning, at most `seconds` long."""
        return Recording(self.samples[: int(seconds * self.rate)], self.rate)


def find_recording() -> pathlib.Path:
    """The path of `examples/data/speech.wav`, under the current directory or in the checkout around this package.

    Raises:
        FileNotFoundError: it is in neither, for example with an installed wheel outside a checkout.
    """
    for folder in (pathlib.Path.cwd(), *pathlib.Path(__file__).resolve().parents):
        if (folder / _DEFAULT).is_file():
            return folder / _DEFAULT
    raise FileNotFoundError(
        f"no {_DEFAULT} in {pathlib.Path.cwd()} or around the installed package; "
        "run the demo in a checkout, or name a 16-bit WAV file with --audio"
    )


def read_wav(path: pathlib.Path) -> Recording:
    """Reads the 16-bit WAV file at `path`; several channels become their mean.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not a WAV file, its samples do not have 16 bits, or it has none.

    Example:
        >>> from sluice.demo.recording import find_recording, read_wav
        >>> read_wav(find_recording()).rate
        16000
    """
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = bytearray(file.readframes(file.getnframes()))
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} must be a PCM WAV file: {error or 'it ends early'}") from error
    if width != 2:
        raise ValueError(f"{path} must have 16-bit samples, got {8 * width}")
    frames = len(content) // (2 * channels)
    if frames == 0:
        raise ValueError(f"{path} must hold at least one sample, got none")
    # WAV is little-endian, like all machines that sluice is built for.
    values = torch.frombuffer(content, dtype=torch.int16, count=frames * channels)
    return Recording(values.view(frames, channels).float().mean(dim=1) / 32768, rate)
