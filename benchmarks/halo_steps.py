"""A causal convolution of a sequence that is split among ranks, timed with the halo's exchange and without it.

    torchrun --standalone --nproc-per-node 2 benchmarks/halo_steps.py [--graphs] [--high-priority] [--json FILE]

For each number of taps and of positions a rank:

    alone     the op on the rank's piece, without an exchange; its first outputs are wrong
    split     sluice.distributed.causal_conv1d: the exchange travels while the piece is computed
    by hand   the exchange is waited for, then the op takes the columns as its initial states
    hidden    the part of what the exchange takes by hand that it does not take with `split`

A time is that of one step among many, one after another, on the slowest rank; with `--graphs` the steps are replayed
from a CUDA graph, so that the host's calls do not count. Results are compared with the unsplit call first.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import sluice
import sluice.distributed

TAPS = (4, 128)
EXPONENTS = tuple(range(14, 21))
CHANNELS = 5120  # Mamba-2.8B's inner channels
ROUNDS = 9
LEAD = 3  # steps before the timed steps
STEP_POSITIONS = 3 << 20  # positions of all steps of a sample, about
TOLERANCE = {torch.bfloat16: 8e-3, torch.float32: 1e-6}

Step = Callable[[], object]


class Piece:
    """A rank's piece of a sequence (1, channels, size * positions), and what is timed on it."""

    def __init__(self, channels: int, positions: int, taps: int, device: torch.device, dtype: torch.dtype) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.columns = taps - 1
        torch.manual_seed(0)  # the same sequence on all ranks
        whole = torch.randn(1, channels, self.size * positions, device=device, dtype=dtype)
        self.weight = (torch.randn(channels, taps, device=device) / taps**0.5).to(dtype)
        self.x = whole[..., self.rank * positions : (self.rank + 1) * positions].contiguous()
        self.out = torch.empty_like(self.x)
        self.lengths = (positions,) * self.size
        self.history = self.x.new_empty(1, channels, self.columns)
        self.steps: dict[str, Step] = {"alone": self.alone, "split": self.split, "by_hand": self.by_hand}
        self.error = self._error(whole)

    def alone(self) -> None:
        sluice.causal_conv1d(self.x, self.weight, activation="silu", out=self.out)

    def split(self) -> None:
        sluice.distributed.causal_conv1d(self.x, self.weight, activation="silu", lengths=self.lengths, out=self.out)

    def by_hand(self) -> None:
        operations = []
        if self.rank + 1 < self.size:
            last = self.x[..., self.x.shape[-1] - self.columns :].contiguous()
            operations.append(dist.P2POp(dist.isend, last, self.rank + 1))
        if self.rank > 0:
            operations.append(dist.P2POp(dist.irecv, self.history, self.rank - 1))
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        states = self.history if self.rank > 0 else None
        sluice.causal_conv1d(self.x, self.weight, activation="silu", initial_states=states, out=self.out)

    def _error(self, whole: torch.Tensor) -> float:
        """The largest relative error of `split` and `by_hand` against the unsplit call; 0 for the same bits."""
        unsplit = sluice.causal_conv1d(whole, self.weight, activation="silu")
        begin = self.rank * self.x.shape[-1]
        expected = unsplit[..., begin : begin + self.x.shape[-1]]
        found = 0.0
        for step in (self.split, self.by_hand):
            self.out.fill_(math.nan)
            step()
            if not torch.equal(self.out, expected):
                rows = zip(self.out[0].split(256), expected[0].split(256), strict=True)  # float64 of all is too large
                found = max(found, *(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in rows))
        if not found <= TOLERANCE[self.x.dtype]:
            raise AssertionError(f"{self.x.shape} {self.columns + 1} taps: error {found} against the unsplit call")
        return found


def start(high_priority: bool) -> torch.device:
    """Joins the group, NCCL with a GPU for each rank or else gloo; returns this rank's device."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    options = None
    if on_gpu:
        torch.cuda.set_device(device)
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=high_priority)
    timeout = datetime.timedelta(minutes=1)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timeout, pg_options=options)
    return device


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def replayed(step: Step, calls: int) -> Step:
    """That many calls of the step as one CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's watchdog is another thread
        for _ in range(calls):
            step()
    return graph.replay


def repeated(step: Step, calls: int) -> Step:
    def run() -> None:
        for _ in range(calls):
            step()

    return run


def seconds(run: Step, lead: Step, device: torch.device) -> float:
    """The slowest rank's seconds of a run after `lead`; the run begins together on all ranks."""
    dist.barrier()
    wait(device)
    lead()  # so that the host is ahead of the GPU when the run begins, if it ever is
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        wait(device)
        found = begin.elapsed_time(end) * 1e-3
    else:
        before = time.perf_counter()
        run()
        found = time.perf_counter() - before
    slowest = torch.tensor(found, device=device, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)


def measure(piece: Piece, rounds: int, graphs: bool) -> dict[str, float]:
    """Microseconds of each step; the steps take turns."""
    calls = min(48, max(16, STEP_POSITIONS // piece.x.shape[-1]))
    several = replayed if graphs else repeated
    runs = {name: (several(step, calls), several(step, LEAD)) for name, step in piece.steps.items()}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run_and_lead in runs.items():
            found[name].append(1e6 * seconds(*run_and_lead, piece.x.device) / calls)
    return {name: round(statistics.median(samples[1:]), 2) for name, samples in found.items()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", action="store_true", help="replay the steps from CUDA graphs")
    parser.add_argument("--high-priority", action="store_true", help="of NCCL's streams")
    parser.add_argument("--channels", type=int, default=CHANNELS, help="%(default)s")
    parser.add_argument("--taps", type=int, nargs="+", default=TAPS, help="of the convolution")
    parser.add_argument("--exponents", type=int, nargs="+", default=EXPONENTS, help="of 2, positions a rank")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="samples of each step (%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there")
    return parser.parse_args()


def main() -> None:
    given = parse()
    device = start(given.high_priority)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():  # sluice computes no gradients
        sluice.distributed.gather_lengths(1, device=device)  # NCCL asks for all ranks in the first communication
        for taps in given.taps:
            for exponent in given.exponents:
                piece = Piece(given.channels, 1 << exponent, taps, device, dtype)
                times = measure(piece, given.rounds, given.graphs)
                rows.append({"taps": taps, "positions": 1 << exponent, "error": piece.error, "us": times})
                if piece.rank == 0:
                    print(taps, exponent, piece.error, times, flush=True)
                del piece
    if dist.get_rank() == 0 and given.json:
        head = {"ranks": dist.get_world_size(), "channels": given.channels, "dtype": str(dtype).removeprefix("torch.")}
        given.json.write_text(json.dumps({**head, "graphs": given.graphs, "rows": rows}))
    dist.barrier()  # no rank leaves while another is still at work
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
