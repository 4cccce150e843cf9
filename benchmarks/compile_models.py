"""Compiles the networks of suite `models` ahead, in several processes: the suite finds them in Inductor's cache.

    python benchmarks/compile_models.py [PART ...] [--processes N] [--budget SECONDS]

Parts are the suite's parts with compiled rows, by default the parts of the networks that users asked about. Each
network is compiled by torch and by sluice's backend, in both modes. What was chosen among a Triton kernel's
configurations while other processes ran is forgotten: the suite chooses again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import subprocess
import sys
import time
from pathlib import Path

WAYS = {"torch": ("torch_compile", "torch_compile_reduce_overhead"), "sluice": ("backend", "backend, reduce-overhead")}
Job = tuple[str, str, int, str]


def compile_one(job: Job) -> str:
    """Says how long each way took, in this process."""
    import torch

    import bench_models

    name, dtype, batch, compiler = job
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = bench_models.ZOO[name].size("user")._replace(batch=batch)
    found, said = bench_models.subject(name, dtype, size, device), []
    for way in WAYS[compiler]:
        begin = time.monotonic()
        try:
            found.call(way)()
            if device.type == "cuda":
                torch.cuda.synchronize()
        except Exception as error:  # the suite will say it too; the other way is compiled
            said.append(f"{way} raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        else:
            said.append(f"{way} {time.monotonic() - begin:.0f} s")
    return "; ".join(said)


def in_a_process(job: Job, deadline: float) -> str:
    """The same in a process of its own, which compiles its kernels itself, on one core."""
    if time.monotonic() > deadline:
        return "not begun"
    command = [sys.executable, __file__, "--job", *map(str, job)]
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = (ran.stdout if ran.returncode == 0 else ran.stderr).splitlines() or [""]
    return said[-1] if ran.returncode == 0 else f"exit status {ran.returncode}: {said[-1]}"


def jobs(parts: list[str]) -> list[Job]:
    """The jobs of the parts, in the suite's order.

    Raises:
        ValueError: a part has no compiled rows.
    """
    import bench_models

    known = {case.part: None for case in bench_models.SUITE.cases if case.params["fn"] == bench_models.BACKEND}
    if unknown := [part for part in parts if part not in known]:
        raise ValueError(f"parts must be among {', '.join(map(str, known))}, got {unknown[0]!r}")
    wanted = parts or [part for part in known if str(part).partition("_compiled_")[0] in bench_models.USERS]
    found = [case.params for case in bench_models.SUITE.cases if case.part in wanted]
    rows = dict.fromkeys((str(row["op"]), str(row["dtype"]), int(row["B"])) for row in found)
    return [(*row, compiler) for row in rows for compiler in WAYS]


def forget_choices() -> None:
    from torch._inductor.codecache import cache_dir

    for path in Path(cache_dir()).rglob("*.best_config"):
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1), help="%(default)s")
    parser.add_argument("--budget", type=float, default=float("inf"), help="begins none after so many seconds")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)  # this process does one job
    given = parser.parse_args()
    if given.job is not None:
        name, dtype, batch, compiler = given.job
        print(compile_one((name, dtype, int(batch), compiler)))
        return
    begin = time.monotonic()
    try:
        wanted = jobs(given.parts)
    except ValueError as error:
        parser.error(str(error))
    with concurrent.futures.ThreadPoolExecutor(given.processes) as pool:
        running = {pool.submit(in_a_process, job, begin + given.budget): job for job in wanted}
        for done in concurrent.futures.as_completed(running):
            label = " ".join(map(str, running[done]))
            print(f"{time.monotonic() - begin:4.0f} s: {label}: {done.result()}", flush=True)
    forget_choices()


if __name__ == "__main__":
    main()
