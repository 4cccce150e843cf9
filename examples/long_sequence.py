"""A block of a Mamba-like network on a sequence that is split among ranks, and the halo's share of its time.

    python examples/long_sequence.py
    torchrun --standalone --nproc-per-node 2 examples/long_sequence.py [--length N] [--timeline FILE.png]

The block: a projection, a causal convolution with SiLU, a gate, a projection; random weights, forward only. The
selective scan between convolution and gate is left out. With the scan the halo's share would be smaller, but the
scan's own states would have to travel too. Ranks use NCCL with a GPU for each, or gloo on the CPU.

Each step is timed with the halo's exchange, and without it: then a piece's first K - 1 outputs are wrong. The first
outputs of each rank are compared with an unsplit computation.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

import sluice
import sluice.distributed
from sluice import stages

Convolution = Callable[[torch.Tensor], torch.Tensor]
Part = Callable[[str], contextlib.AbstractContextManager[None]]  # what a part of a step runs in
CHECKED = 64  # outputs of each rank, from its first output on


class Block:
    """Positions (1, n, width) to the same shape."""

    def __init__(self, width: int, taps: int, **options: torch.dtype | torch.device) -> None:
        torch.manual_seed(0)  # the same weights on all ranks
        inner = 2 * width
        self.project_in = (torch.randn(2 * inner, width) / width**0.5).to(**options)
        self.taps = (torch.randn(inner, taps) / taps**0.5).to(**options)
        self.project_out = (torch.randn(inner, width) / inner**0.5).to(**options)

    def __call__(self, x: torch.Tensor, convolve: Convolution, part: Part = contextlib.nullcontext) -> torch.Tensor:
        with part("projection in"):
            hidden, gate = (self.project_in @ x.mT).chunk(2, dim=1)
        with part("convolution"):
            y = convolve(hidden)
        # A scan would be here.
        with part("gate"):
            gated = sluice.transform(gate, stages.silu() | stages.mul(y))
        with part("projection out"):
            return gated.mT @ self.project_out

    def alone(self, hidden: torch.Tensor) -> torch.Tensor:
        """The convolution of this piece, as if nothing was before it."""
        return sluice.causal_conv1d(hidden, self.taps, activation="silu")

    def split(self, lengths: tuple[int, ...]) -> Convolution:
        """The convolution of a piece, with the positions before it from other ranks."""
        return lambda hidden: sluice.distributed.causal_conv1d(hidden, self.taps, activation="silu", lengths=lengths)


def inputs(first: int, last: int, width: int, **options: torch.dtype | torch.device) -> torch.Tensor:
    """(1, last - first, width): values that follow from the position, so every rank can make any of them."""
    positions = torch.arange(first, last, device=options["device"])[:, None]
    channels = torch.arange(width, device=options["device"])
    return ((positions * (2 * channels + 3) % 1021).float() / 510 - 1).to(**options)[None]


def wait(device: torch.device) -> None:
    """Until this rank's work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(steps: dict[str, Callable[[], object]], device: torch.device, samples: int) -> dict[str, float]:
    """The median time of each step; a sample is the slowest rank's, and the steps take turns."""
    times = torch.zeros(len(steps), samples + 1, device=device, dtype=torch.float64)
    for sample in range(samples + 1):
        for row, step in enumerate(steps.values()):
            dist.barrier()
            wait(device)
            begin = time.perf_counter()
            step()
            wait(device)
            times[row, sample] = 1e3 * (time.perf_counter() - begin)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return {name: statistics.median(row[1:]) for name, row in zip(steps, times.tolist(), strict=True)}


Span = tuple[str, float, float]  # what, and its begin and end in milliseconds


class Stamps:
    """Notes when a step's parts begin and end, by the host's clock, which all processes of the host share.

    (torch.profiler records more, but with torch 2.13 a gloo group that it has seen keeps its threads after
    destroy_process_group, and then the process may abort at its exit.)
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._sent: list[float] = []
        self._waits: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = now()
        yield
        self.spans.append((name, begin, now()))

    def batch_isend_irecv(self, operations: list[dist.P2POp]) -> list[Any]:
        """The one communication of a split convolution; then its works are waited for."""
        works = ORIGINAL(operations)
        self._sent.append(now())
        return [mock.Mock(wait=functools.partial(self._wait, work)) for work in works]

    def _wait(self, work: Any) -> None:
        begin = now()
        work.wait()
        self._waits.append((begin, now()))

    def phases(self) -> list[Span]:
        """The block's parts, with the convolution divided as docs/scaling.md says: pack, piece, wait, first outputs."""
        found = []
        for name, begin, end in self.spans:
            if name != "convolution":
                found.append((name, begin, end))
            elif not self._sent:
                found.append(("the piece", begin, end))
            else:
                times = [begin, self._sent[0], self._waits[0][0], self._waits[-1][1], end]
                names = ["pack, send", "the piece", "wait", "first outputs"]
                found += [(one, *span) for one, span in zip(names, itertools.pairwise(times), strict=True)]
        return found


ORIGINAL = dist.batch_isend_irecv


def now() -> float:
    return 1e3 * time.perf_counter()


def record(block: Block, x: torch.Tensor, convolve: Convolution) -> list[Span]:
    """What this rank does in a step: the block's parts on the CPU, kernels on a GPU."""
    if x.device.type == "cuda":
        return kernels_of(lambda: block(x, convolve))
    stamps = Stamps()  # on the CPU the host's time is that of the work
    dist.barrier()
    with mock.patch.object(dist, "batch_isend_irecv", stamps.batch_isend_irecv):
        block(x, convolve, stamps.part)
    return stamps.phases()


def kernels_of(step: Callable[[], object]) -> list[Span]:
    """The kernels of a step on the GPU, copies too, in the order of their begins."""
    for _ in range(2):  # the first profile takes long to start, at other times on other ranks
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            dist.barrier()
            torch.cuda.synchronize()
            step()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    origin = trace.get("baseTimeNanoseconds", 0) % 10**13 / 1e6  # the origin of all ranks' clocks
    found = [
        (event["name"][:80], origin + event["ts"] / 1e3, origin + (event["ts"] + event["dur"]) / 1e3)
        for event in trace["traceEvents"]
        if event.get("cat") in ("kernel", "gpu_memcpy")
    ]
    found.sort(key=lambda kernel: kernel[1])
    barriers = [n for n, (name, _, _) in enumerate(found) if "AllReduce" in name]
    return found[barriers[-1] + 1 :] if barriers else found


def parts_of(kernels: list[Span]) -> list[Span]:
    """The block's parts, known by their kernels: sluice's are the piece, the first outputs and the gate."""
    ours = [kernel for kernel in kernels if "sluice" in kernel[0]]
    gate = ours.pop()
    piece = max(ours, key=lambda kernel: kernel[2] - kernel[1])

    def part(kernel: Span) -> str:
        name, begin, _ = kernel
        if name.startswith("nccl"):
            return "exchange"
        if kernel in (piece, gate):
            return "the piece" if kernel is piece else "gate"
        if begin > piece[1]:
            return "projection out" if begin > gate[1] else "first outputs"
        is_copy = any(word in name.lower() for word in ("copy", "cat", "memcpy", "elementwise"))
        return "pack, send" if is_copy or "sluice" in name else "projection in"

    return [(part(kernel), *kernel[1:]) for kernel in kernels]


COLORS = {
    "projection in": "#9ecae9", "pack, send": "#e45756", "the piece": "#f58518", "exchange": "#bab0ac",
    "wait": "#79706e", "first outputs": "#b279a2", "gate": "#54a24b", "projection out": "#4c78a8",
}  # fmt: skip


def draw(path: pathlib.Path, ranks: list[list[Span]], title: str) -> None:
    """Above, the ranks' steps; below, how long the parts of the convolution take, on a logarithmic scale."""
    import matplotlib.pyplot as plt

    start = min(begin for spans in ranks for _, begin, _ in spans)
    figure, (steps, parts) = plt.subplots(2, 1, figsize=(11, 2.6 + 0.9 * len(ranks)), layout="constrained")
    for rank, spans in enumerate(ranks):
        for name, begin, end in spans:
            color = COLORS[name]  # the edges' color too: a white edge would hide a narrow box
            row = (rank + 0.2, 0.2) if name == "exchange" else (rank - 0.3, 0.5)  # beside the other kernels
            steps.broken_barh([(begin - start, end - begin)], row, facecolors=color, edgecolors=color)
    steps.set_title(title, loc="left", fontsize=9)
    steps.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
    steps.set_xlabel("milliseconds")
    used = {name for spans in ranks for name, _, _ in spans}
    names = [name for name in ("pack, send", "the piece", "exchange", "wait", "first outputs") if name in used]
    height = 0.8 / len(ranks)
    for rank, spans in enumerate(ranks):
        for row, name in enumerate(names):
            total, y = sum(end - begin for one, begin, end in spans if one == name), row - 0.4 + rank * height
            if total > 0:
                parts.barh(y, total, 0.9 * height, align="edge", color=COLORS[name])
                parts.text(total, y + height / 2, f" rank {rank}: {total:.3f} ms", va="center", fontsize=7)
    parts.set_xscale("log")
    parts.margins(x=0.15)
    parts.set_yticks(range(len(names)), names)
    parts.set_xlabel("milliseconds of the convolution's parts")
    shown = [name for name in COLORS if name in used]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLORS[name]) for name in shown]
    steps.legend(handles, shown, ncols=len(shown), fontsize=7, loc="lower left", bbox_to_anchor=(0, 1.1), frameon=False)
    for axes in (steps, parts):
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def parse() -> argparse.Namespace:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1 << 20, help="positions of the whole sequence (%(default)s)")
    parser.add_argument("--width", type=int, default=1024 if on_gpu else 32, help="channels; twice as many inside")
    parser.add_argument("--taps", type=int, default=4, help="of the convolution (%(default)s)")
    parser.add_argument("--samples", type=int, default=9, help="of each time (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="also write the numbers there")
    parser.add_argument("--timeline", type=pathlib.Path, help="draw what each rank does in a step")
    return parser.parse_args()


def start(on_gpu: bool) -> tuple[int, int]:
    """This process's rank and how many there are; one without torchrun."""
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "nccl" if on_gpu else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=datetime.timedelta(minutes=5))
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return dist.get_rank(), dist.get_world_size()


def is_right(block: Block, result: torch.Tensor, first: int, width: int, options: dict) -> bool:
    """Whether all ranks' first outputs equal an unsplit computation's outputs."""
    count, history = min(CHECKED, result.shape[1]), min(block.taps.shape[1] - 1, first)
    expected = block(inputs(first - history, first + count, width, **options), block.alone)[:, history:]
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if result.dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    same = torch.tensor(int(torch.allclose(result[:, :count], expected, **tolerance)), device=result.device)
    dist.all_reduce(same, dist.ReduceOp.MIN)
    return bool(same)


def main() -> int:
    given, on_gpu = parse(), torch.cuda.is_available()
    rank, size = start(on_gpu)
    device, dtype = (torch.device("cuda"), torch.bfloat16) if on_gpu else (torch.device("cpu"), torch.float32)
    options = {"device": device, "dtype": dtype}
    first, last = rank * given.length // size, (rank + 1) * given.length // size
    block, x = Block(given.width, given.taps, **options), inputs(first, last, given.width, **options)
    lengths = sluice.distributed.gather_lengths(last - first, device=device)

    split = block.split(lengths)
    with torch.inference_mode():  # sluice computes no gradients
        right = is_right(block, block(x, split), first, given.width, options)
        hidden = (block.project_in @ x.mT).chunk(2, dim=1)[0]
        steps = {
            "block": lambda: block(x, split),
            "block, no halo": lambda: block(x, block.alone),
            "convolution": lambda: split(hidden),
            "convolution, no halo": lambda: block.alone(hidden),
        }
        times = milliseconds(steps, device, given.samples)
        recorded: list[list[Span]] = [[]] * size
        if given.timeline:
            dist.all_gather_object(recorded, record(block, x, split))
    halo = (given.taps - 1) * hidden.shape[1] * hidden.element_size() * (size > 1)
    if rank == 0:
        where = f"{dtype} by {dist.get_backend()}" + ("" if on_gpu else f", {torch.get_num_threads()} threads a rank")
        title = f"{given.length} positions, {size} ranks, {hidden.shape[1]} channels, {given.taps} taps, {where}"
        report(title, times, halo, hidden.numel() * hidden.element_size())
        if given.json:
            numbers = {"ranks": size, "length": given.length, "channels": hidden.shape[1], "taps": given.taps}
            given.json.write_text(json.dumps({**numbers, "halo_bytes": halo, "ms": times, "timeline": recorded}))
        if given.timeline:
            timeline(given.timeline, [parts_of(one) for one in recorded] if on_gpu else recorded, title)
        print("the first outputs of each rank:", "the same as unsplit" if right else "DIFFERENT")
    dist.barrier()  # no rank leaves while another is still at work
    dist.destroy_process_group()
    return 0 if right else 1


def report(title: str, times: dict[str, float], halo: int, piece: int) -> None:
    """Prints the times, and what the exchange adds."""
    print(title)
    print(f"halo: {halo} bytes from a rank to the next, of {piece} bytes that the convolution reads on each")
    for name in ("block", "convolution"):
        ours, without = times[name], times[f"{name}, no halo"]
        share = 100 * (ours - without) / ours
        print(f"{name}: {ours:.2f} ms, {without:.2f} ms without the exchange, the halo's share {share:.1f} %")


def timeline(path: pathlib.Path, ranks: list[list[Span]], title: str) -> None:
    """Prints how long each part takes, and draws them."""
    for rank, spans in enumerate(ranks):
        print(f"rank {rank}:", ", ".join(f"{name} {end - begin:.3f} ms" for name, begin, end in spans))
    try:
        draw(path, ranks, title)
        print(f"picture: {path}")
    except ImportError as error:
        print(f"no picture: it needs matplotlib ({error})")


if __name__ == "__main__":
    raise SystemExit(main())
