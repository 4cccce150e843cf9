"""Records examples/long_sequence.py with 1 to 4 processes on this machine's CPU.

    python benchmarks/record_scaling.py [--length N] [--most RANKS] [--picture FILE.png] [--output FILE]

Each process has one thread. The file is benchmarks/recordings/cpu/scaling.json; `make results` writes the table in
docs/scaling.md from it.
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

from sluice.bench import checkout_root

PICTURED = 2  # ranks of the picture: as many as the machine has cores


def run(ranks: int, length: int, picture: Path | None) -> dict[str, Any]:
    """The numbers that the example writes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.json"
        command += [str(checkout_root() / "examples/long_sequence.py"), "--length", str(length), "--json", str(path)]
        if picture is not None:
            command += ["--timeline", str(picture)]
        subprocess.run(command, env=environment, check=True)
        return dict(json.loads(path.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=1 << 20, help="of the whole sequence (%(default)s)")
    parser.add_argument("--most", type=int, default=4, help="processes (%(default)s)")
    parser.add_argument("--picture", type=Path, help=f"of {PICTURED} processes")
    default = checkout_root() / "benchmarks/recordings/cpu/scaling.json"
    parser.add_argument("--output", type=Path, default=default, help="%(default)s")
    given = parser.parse_args()
    load = os.getloadavg()[0]  # before the first run
    rows = [run(n, given.length, given.picture if n == PICTURED else None) for n in range(1, given.most + 1)]
    head = {"date": datetime.date.today().isoformat(), "torch": torch.__version__, "cores": os.cpu_count()}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps({**head, "load": round(load, 2), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
