"""Records what the halo of a split sequence costs: on this machine's CPU, or on its GPUs.

    python benchmarks/record_scaling.py [--device cpu|cuda] [--length N] [--most RANKS] [--picture FILE.png]
                                        [--output FILE]

    CPU     examples/long_sequence.py with 1 to 4 processes of one thread each
    GPUs    the same with a process for each GPU, and halo_steps.py on two of them: from the host and from CUDA graphs,
            with NCCL's usual streams and with streams of high priority

The file is benchmarks/recordings/<card>/scaling.json; `make results` writes the tables in docs/scaling.md from it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from sluice.bench import checkout_root, source_hash
from sluice.bench.results import gpu_slug

EXAMPLE = "examples/long_sequence.py"
STEPS = "benchmarks/halo_steps.py"
PAIR = 2  # ranks of the picture and of the steps
PICTURED_POSITIONS = 1 << 17  # a rank's, on GPUs
PICTURED_TAPS = 128


def run(program: str, ranks: int, device: str, *arguments: str) -> dict[str, Any]:
    """The numbers that a program writes, which torchrun starts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = dict(os.environ)
    if device == "cpu":
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.json"
        command += [str(checkout_root() / program), "--json", str(path), *arguments]
        subprocess.run(command, env=environment, check=True)
        return dict(json.loads(path.read_text()))


def blocks(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The example's numbers for 1 to `--most` ranks; the CPU's picture is of one of these runs."""

    def block(ranks: int) -> dict[str, Any]:
        drawn = ["--timeline", str(given.picture)] if given.device == "cpu" and given.picture and ranks == PAIR else []
        found = run(EXAMPLE, ranks, given.device, "--length", str(given.length), *drawn)
        found.pop("timeline")
        return found

    return [block(ranks) for ranks in range(1, given.most + 1)]


def pair(given: argparse.Namespace) -> dict[str, Any]:
    """What two GPUs do: the kernels of one step of the example, and the steps; without the programs that fail."""
    drawn = ["--timeline", str(given.picture)] if given.picture else []
    sizes = ["--length", str(PAIR * PICTURED_POSITIONS), "--taps", str(PICTURED_TAPS)]
    programs = {
        "kernels": [EXAMPLE, *sizes, *drawn],
        "host": [STEPS],
        "host_priority": [STEPS, "--high-priority"],
        "graph": [STEPS, "--graphs"],
        "graph_priority": [STEPS, "--graphs", "--high-priority"],
    }
    found: dict[str, Any] = {}
    for name, (program, *arguments) in programs.items():
        try:
            found[name] = run(program, PAIR, "cuda", *arguments)
        except subprocess.CalledProcessError as error:
            print(f"not recorded: {error}", file=sys.stderr)
    return found


def main() -> None:
    gpus = torch.cuda.device_count()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cuda" if gpus >= PAIR else "cpu", help="%(default)s"
    )
    parser.add_argument("--length", type=int, default=1 << 20, help="of the whole sequence (%(default)s)")
    parser.add_argument("--most", type=int, help="processes (4, or the number of GPUs)")
    parser.add_argument("--picture", type=Path, help=f"of {PAIR} ranks")
    parser.add_argument("--output", type=Path, help="another file")
    given = parser.parse_args()
    on_gpu = given.device == "cuda"
    given.most = given.most or (gpus if on_gpu else 4)
    name = gpu_slug(torch.cuda.get_device_name(0)) if on_gpu else "cpu"
    output = given.output or checkout_root() / f"benchmarks/recordings/{name}/scaling.json"
    load = os.getloadavg()[0]  # before the first run
    head: dict[str, Any] = {"date": datetime.date.today().isoformat(), "torch": torch.__version__}
    if on_gpu:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        head |= {"gpu": torch.cuda.get_device_name(0), "cuda": torch.version.cuda, "nccl": nccl, "gpus": gpus}
        head |= {"source_hash": source_hash(checkout_root()), **pair(given)}
    else:
        head |= {"cores": os.cpu_count(), "load": round(load, 2)}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps({**head, "rows": blocks(given)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
