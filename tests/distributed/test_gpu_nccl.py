"""The same random splits with NCCL, a GPU for each rank, and the programs that measure them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import split_calls
import torch
from ranks import Ranks

import sluice
from common import ROOT

GPUS = torch.cuda.device_count()


@pytest.fixture(scope="module")
def group() -> Iterator[Ranks]:
    if GPUS < 2:
        pytest.skip("needs two CUDA devices")
    found = Ranks(GPUS, "nccl")
    yield found
    if found.is_alive:
        found.close()


@pytest.mark.parametrize("function", ["random_convolutions", "random_causal_convolutions"])
def test_random_splits(function: str, group: Ranks) -> None:
    found = group.run(getattr(split_calls, function), int(torch.randint(2**31, ())), 60, None, "cuda")
    assert [len(one) for one in found] == [60] * GPUS


def run(program: str, ranks: int, *arguments: str) -> str:
    """What the program prints, which torchrun starts."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(sluice.__file__).parent.parent)}
    ran = subprocess.run(
        [*command, str(ROOT / program), *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_example_draws_its_kernels(ranks: int, tmp_path: pathlib.Path) -> None:
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} CUDA devices")
    path, picture = tmp_path / "numbers.json", tmp_path / "picture.png"
    printed = run(
        "examples/long_sequence.py", ranks, "--length", "65536", "--width", "64", "--taps", "128", "--samples", "2",
        "--json", str(path), "--timeline", str(picture),
    )  # fmt: skip
    assert "the first outputs of each rank: the same as unsplit" in printed
    recorded = json.loads(path.read_text())["timeline"]
    assert len(recorded) == ranks
    for kernels in recorded:
        assert sum("sluice" in name for name, _, _ in kernels) >= 2
        assert any(name.startswith("ncclDevKernel_SendRecv") for name, _, _ in kernels) == (ranks > 1)
        assert all(begin < end for _, begin, end in kernels)
    last = printed[printed.index(f"rank {ranks - 1}:") :].splitlines()[0]
    assert all(part in last for part in ("projection in", "the piece", "gate", "projection out"))
    assert ("exchange" in last) == ("first outputs" in last) == (ranks > 1)


@pytest.mark.parametrize("graphs", [(), ("--graphs", "--high-priority")], ids=["host", "graphs"])
def test_the_steps_are_those_of_the_unsplit_call(graphs: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    if GPUS < 2:
        pytest.skip("needs two CUDA devices")
    path = tmp_path / "steps.json"
    sizes = ("--channels", "64", "--exponents", "12", "--rounds", "2")
    run("benchmarks/halo_steps.py", 2, *sizes, *graphs, "--json", str(path))
    found = json.loads(path.read_text())
    assert (found["ranks"], found["dtype"], found["graphs"]) == (2, "bfloat16", bool(graphs))
    assert [row["taps"] for row in found["rows"]] == [4, 128]
    assert all(us > 0 for row in found["rows"] for us in row["us"].values())
