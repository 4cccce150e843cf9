"""A neural codec that runs in chunks of 80 ms: Mimi's convolutions for four callers, who come and go in one batch.

    python examples/streaming_codec.py [--seconds N] [--filters N] [--output streaming_codec.png]

The encoder's and the decoder's convolutions of transformers' Mimi, without the transformers and the quantizer between
them, become streams by `sluice.streaming`. A batch has three rows and three slots for four callers: the last caller
gets the slot of the first caller, who has left. Weights are random, so what comes out is no voice. Each caller's
chunks are compared with the model's result for the whole recording. A step is a CUDA graph on a GPU.

It needs the source tree, whose demo it uses, transformers, and matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import time
from typing import Any

import torch

import sluice
from sluice.demo.recording import find_recording, read_wav
from sluice.demo.weights import keep_levels

RATE, CHUNK = 24000, 1920  # Mimi's samples a second, and the samples of its 12.5 frames a second
ROWS = 3  # rows of the batch, and slots
CALLS = ((0.0, 0.4), (0.1, 0.7), (0.25, 1.0), (0.5, 0.9))  # when each caller comes and leaves
COLORS = "#4c78a8", "#f58518", "#54a24b", "#b279a2"


def convolutions(filters: int, sound: torch.Tensor) -> tuple[torch.nn.Module, torch.nn.Module]:
    """Mimi's encoder, samples (B, 1, L) to frames (B, 512, L / 1920), and its decoder, both with random weights."""
    try:
        from transformers import MimiConfig, MimiModel
    except ImportError as error:
        problem = f"streaming_codec.py needs transformers, which has Mimi: pip install transformers ({error})"
        raise SystemExit(problem) from error
    # The layers between both are small here, because they are not used.
    between = {"num_hidden_layers": 1, "intermediate_size": 8, "num_quantizers": 2, "num_semantic_quantizers": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mimi = MimiModel(MimiConfig(num_filters=filters, **between)).eval().requires_grad_(False)
    if hasattr(mimi.encoder, "encoder_seanet"):
        encoder = torch.nn.Sequential(mimi.encoder.encoder_seanet, mimi.encoder.downsample)
        decoder = torch.nn.Sequential(mimi.decoder.upsample, mimi.decoder.decoder_seanet)
    else:  # older versions of transformers
        encoder = torch.nn.Sequential(mimi.encoder, mimi.downsample)
        decoder = torch.nn.Sequential(mimi.upsample, mimi.decoder)
    both = torch.nn.Sequential(encoder, decoder).eval()
    keep_levels(both, sound)  # signals neither overflow nor vanish
    for name, parameter in both.named_parameters():
        if name.endswith("bias"):
            parameter.mul_(0.1)  # so that the recording's pauses show
    return encoder, decoder


class Step:
    """A step of all rows: it reads `samples` and `slots`, writes `result`, and moves the states on.

    Attributes:
        samples: (ROWS, 1, CHUNK).
        slots: (ROWS,) each row's slot, -1 for a row without a caller.
        result: (ROWS, 1, CHUNK), zeros in a row without a caller.
    """

    def __init__(self, encoder: sluice.Streaming, decoder: sluice.Streaming, options: dict[str, Any]) -> None:
        self.encoder, self.decoder = encoder, decoder
        self.samples = torch.zeros(ROWS, 1, CHUNK, **options)
        self.slots = torch.full((ROWS,), -1, dtype=torch.int32, device=options["device"])
        self.result = torch.zeros_like(self.samples)
        self._graph = self._captured() if self.samples.is_cuda else None

    def _run(self) -> None:
        frames = self.encoder(self.samples, self.slots)
        # The transformers and the quantizer would be here.
        self.result.copy_(self.decoder(frames, self.slots))

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The step as a graph; the steps before the capture link kernels, and no slot sees them."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run()
        return graph

    def begin(self, slot: int) -> None:
        """Makes the slot a new caller's."""
        for stream in (self.encoder, self.decoder):
            stream.reset(torch.tensor([slot], device=self.slots.device))

    def __call__(self, chunks: list[torch.Tensor], slots: list[int]) -> torch.Tensor:
        """The results of the callers in these slots, (ROWS, 1, CHUNK) on the CPU."""
        absent = ROWS - len(slots)
        self.samples.copy_(torch.stack([*chunks, *[torch.zeros(1, CHUNK)] * absent]))
        self.slots.copy_(torch.tensor([*slots, *[-1] * absent]))
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()
        return self.result.to("cpu", torch.float32, copy=True)


@dataclasses.dataclass
class Caller:
    """A caller's sound, and what came back."""

    begin: int  # the first step
    end: int  # the step after the last step
    sound: torch.Tensor  # (1, samples)
    slot: int = -1
    results: list[torch.Tensor] = dataclasses.field(default_factory=list)
    whole: torch.Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))  # the model's result, (1, samples)

    @property
    def chunked(self) -> torch.Tensor:
        """What came back, (1, samples)."""
        return torch.cat(self.results, dim=-1)


def sound_at(rate: int, seconds: float) -> torch.Tensor:
    """(L,) the recording at another rate, by a Fourier transform, repeated to fill the seconds."""
    recording = read_wav(find_recording())
    length = recording.samples.numel() * rate // recording.rate
    samples = torch.fft.irfft(torch.fft.rfft(recording.samples), n=length) * rate / recording.rate
    wanted = round(seconds * rate)
    return samples.repeat(-(-wanted // length))[:wanted]


def serve(step: Step, callers: list[Caller], steps: int) -> list[float]:
    """Takes all callers through the stream; returns the milliseconds of each step, copies to and from a GPU too."""
    free, times = list(range(ROWS)), []
    for now in range(steps):
        free += [caller.slot for caller in callers if caller.end == now]
        for caller in callers:
            if caller.begin == now:
                caller.slot = free.pop(0)
                step.begin(caller.slot)
        present = [caller for caller in callers if caller.begin <= now < caller.end]
        chunks = [caller.sound[:, (now - caller.begin) * CHUNK :][:, :CHUNK] for caller in present]
        start = time.perf_counter()
        results = step(chunks, [caller.slot for caller in present])
        times.append(1e3 * (time.perf_counter() - start))
        for caller, result in zip(present, results, strict=False):  # the other rows have no caller
            caller.results.append(result)
    return times


def draw(path: pathlib.Path, callers: list[Caller], title: str) -> None:
    """Three panels with a lane for each slot: the chunked results, the whole results, and their difference."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    loudest = max(float(caller.whole.abs().max()) for caller in callers)
    differences = [caller.chunked - caller.whole for caller in callers]
    largest = max(float(difference.abs().max()) for difference in differences)
    panels = {
        f"In chunks of 80 ms: {title}": ([caller.chunked for caller in callers], loudest),
        "The whole sound of each caller at once, by torch": ([caller.whole for caller in callers], loudest),
        f"The difference, at most {largest / loudest:.1e} of the loudest sample": (differences, largest or 1.0),
    }
    shared = None
    for place, (name, (waves, most)) in enumerate(panels.items()):
        axes = figure.add_subplot(3, 1, place + 1, sharex=shared)
        shared = shared or axes
        for number, (caller, wave) in enumerate(zip(callers, waves, strict=True)):
            blocks = wave.view(-1, CHUNK // 16)  # the lowest and the highest of 5 ms
            seconds = [(caller.begin * CHUNK + (i + 0.5) * CHUNK / 16) / RATE for i in range(len(blocks))]
            low, high = (caller.slot + 0.45 * edge / most for edge in (blocks.amin(1), blocks.amax(1)))
            axes.fill_between(seconds, low.tolist(), high.tolist(), color=COLORS[number], linewidth=0.4)
            axes.text(caller.begin * CHUNK / RATE, caller.slot - 0.36, f" caller {number}", fontsize=8)
            axes.axvline(caller.begin * CHUNK / RATE, color=COLORS[number], linewidth=0.8)
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_yticks(range(ROWS), [f"slot {slot}" for slot in range(ROWS)])
        axes.set_ylim(ROWS - 0.5, -0.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=place == len(panels) - 1)
    axes.set_xlabel("seconds")
    figure.savefig(path, dpi=110)


def main() -> int:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.4, help="of all calls (%(default)s)")
    parser.add_argument("--filters", type=int, default=64 if on_gpu else 32, help="Mimi has 64 (%(default)s)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("streaming_codec.png"), help="%(default)s")
    given = parser.parse_args()

    options = {"device": "cuda", "dtype": torch.float16} if on_gpu else {"device": "cpu", "dtype": torch.float32}
    steps = max(10, round(given.seconds * RATE / CHUNK))
    sound = sound_at(RATE, steps * CHUNK / RATE)
    models = convolutions(given.filters, sound[None, None, : 10 * CHUNK])
    encode, decode = (model.to(**options) for model in models)
    encoder, decoder = (sluice.streaming(model, slots=ROWS) for model in (encode, decode))

    callers = []
    for number, (begin, end) in enumerate(CALLS):
        first, last = round(begin * steps), round(end * steps)
        own = sound.roll(-number * sound.numel() // len(CALLS))[None, : (last - first) * CHUNK]
        callers.append(Caller(first, last, own))
    times = serve(Step(encoder, decoder, options), callers, steps)
    with torch.inference_mode():
        for caller in callers:
            caller.whole = decode(encode(caller.sound[None].to(**options)))[0].float().cpu()

    held = sum(state[0].nbytes for stream in (encoder, decoder) for state in stream.state.values())
    print(f"Mimi's convolutions, {given.filters} filters, {options['dtype']} on {options['device']}: "
          f"{held / 1024:.0f} KiB of state a slot")  # fmt: skip
    for number, caller in enumerate(callers):
        print(f"caller {number}: steps {caller.begin} to {caller.end - 1} in slot {caller.slot}")
    title = f"{statistics.median(times):.4g} ms a step for {ROWS} rows"
    print(f"{steps} steps of 80 ms: {title} (median{', with a CUDA graph' if on_gpu else ''})")
    waited = encoder.latency + decoder.latency * CHUNK
    print(f"latency: 80 ms of a chunk, and {waited} samples that the layers wait for")
    loudest = max(float(caller.whole.abs().max()) for caller in callers)
    largest = max(float((caller.chunked - caller.whole).abs().max()) for caller in callers) / loudest
    is_same = largest < (2e-2 if on_gpu else 1e-5)
    print(f"largest difference {largest:.1e} of the loudest sample:", "the same as at once" if is_same else "DIFFERENT")
    try:
        draw(given.output, callers, title)
        print(f"picture: {given.output}")
    except ImportError as error:
        print(f"no picture: it needs matplotlib ({error})")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
