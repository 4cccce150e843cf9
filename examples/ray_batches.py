"""A Ray data set through a chain: each worker of `map_batches` holds a Streamer with budgets of its own.

    python examples/ray_batches.py [--rows N] [--workers N]

Ray shows the progress, starts the workers, and replaces one that dies. It needs Ray: `pip install "torch-sluice[ray]"`.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np
import torch

import sluice
from sluice import stages

SAMPLES = 512  # samples of a row


def signals(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows in place of a file's: what a row holds follows from its number."""
    numbers = batch["id"]
    phases = (numbers[:, None] + 1) * np.linspace(0, 1, SAMPLES)
    return {"id": numbers, "x": np.sin(phases).astype(np.float32)}


def companded() -> sluice.Chain:
    return stages.scale(4.0) | stages.tanh() | stages.mul(torch.hann_window(SAMPLES))


class Compander:
    """What a worker keeps between batches. Ray makes it in the worker, so nothing in it has to be pickled.

    Args:
        budget: bytes for the Streamer's slots, and as many for its pinned rings and results.
    """

    def __init__(self, budget: int) -> None:
        self._chain = companded()
        self._streamer = sluice.Streamer(memory_budget=budget, pinned_budget=budget)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        # Ray's arrays are views of its object store: they are read where they are, and cannot be written.
        y = self._streamer.map(self._chain, batch["x"])
        return {"id": batch["id"], "y": y.numpy(), "process": np.full(len(y), os.getpid())}


def share_of_a_gpu(gpus: int, workers: int) -> float:
    """The GPUs of a worker, so that all workers run at once; Ray gives no worker parts of two."""
    return 1 / -(-workers // gpus) if gpus else 0.0


def check(tables: list[dict[str, np.ndarray]], rows: int) -> str:
    """What is wrong with the result, empty if nothing is."""
    order = np.argsort(numbers := np.concatenate([table["id"] for table in tables]))
    if not np.array_equal(numbers[order], np.arange(rows)):
        return f"{rows} rows became {len(numbers)}, {len(np.unique(numbers))} of them different"
    y = torch.from_numpy(np.concatenate([table["y"] for table in tables])[order])
    at_once = companded()(torch.from_numpy(signals({"id": np.arange(rows)})["x"]))
    return "" if torch.allclose(y, at_once, rtol=1e-5, atol=1e-6) else "values differ from the chain's"


def main(worker: type[Any] = Compander) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help=f"of {SAMPLES} samples each (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=1000, help="rows of a call (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes with a Streamer each (%(default)s)")
    parser.add_argument("--budget", type=int, default=64, help="MiB of a worker's Streamer (%(default)s)")
    parser.add_argument("--address", help="of a running cluster; without it Ray is started here")
    given = parser.parse_args()
    import ray  # after --help, which needs none

    if given.address:
        ray.init(address=given.address)
    else:  # a CPU for each worker and one to read with, however many cores there are: Ray waits for one that is free
        ray.init(num_cpus=given.workers + 1, include_dashboard=False)
    gpus = share_of_a_gpu(int(ray.cluster_resources().get("GPU", 0)), given.workers)
    print(f"{given.workers} workers, each with {gpus:.3g} of a GPU" if gpus else f"{given.workers} workers on the CPU")

    begin = time.perf_counter()
    results = ray.data.range(given.rows).map_batches(signals).map_batches(
        worker,
        fn_constructor_args=(given.budget << 20,),
        batch_size=given.batch_size,
        compute=ray.data.ActorPoolStrategy(size=given.workers),
        num_gpus=gpus,
    )  # fmt: skip
    tables = list(results.iter_batches(batch_size=None))
    seconds = time.perf_counter() - begin
    ray.shutdown()

    processes = len({int(pid) for table in tables for pid in table["process"]})
    print(f"{given.rows} rows from {processes} processes in {seconds:.1f} s")
    wrong = check(tables, given.rows)
    print("by batches:", f"DIFFERENT: {wrong}" if wrong else "every row once, the same as at once")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
