"""The same random splits with NCCL, a GPU for each rank, and the programs that measure them."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
import split_calls
import torch
from ranks import Ranks, run_program

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


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_example_draws_its_kernels(ranks: int, tmp_path: pathlib.Path) -> None:
    if ranks > GPUS:
        pytest.skip(f"needs {ranks} CUDA devices")
    path, picture = tmp_path / "numbers.json", tmp_path / "picture.png"
    lines = run_program(
        ROOT / "examples/long_sequence.py", "--length", "65536", "--width", "64", "--taps", "128", "--samples", "2",
        "--json", str(path), "--timeline", str(picture), ranks=ranks,
    )  # fmt: skip
    assert "the first outputs of each rank: the same as unsplit" in lines
    recorded = json.loads(path.read_text())["timeline"]
    assert len(recorded) == ranks
    for kernels in recorded:
        assert sum("sluice" in name for name, _, _ in kernels) >= 2
        assert any(name.startswith("ncclDevKernel_SendRecv") for name, _, _ in kernels) == (ranks > 1)
        assert all(begin < end for _, begin, end in kernels)
    (last,) = [line for line in lines if line.startswith(f"rank {ranks - 1}:")]
    assert all(part in last for part in ("projection in", "the piece", "gate", "projection out"))
    assert ("exchange" in last) == ("first outputs" in last) == (ranks > 1)


@pytest.mark.parametrize("graphs", [(), ("--graphs", "--high-priority")], ids=["host", "graphs"])
def test_the_steps_are_those_of_the_unsplit_call(graphs: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    if GPUS < 2:
        pytest.skip("needs two CUDA devices")
    path = tmp_path / "steps.json"
    sizes = ("--channels", "64", "--exponents", "12", "--rounds", "2")
    run_program(ROOT / "benchmarks/halo_steps.py", *sizes, *graphs, "--json", str(path), ranks=2)
    found = json.loads(path.read_text())
    assert (found["ranks"], found["dtype"], found["graphs"]) == (2, "bfloat16", bool(graphs))
    assert [row["taps"] for row in found["rows"]] == [4, 128]
    assert all(us > 0 for row in found["rows"] for us in row["us"].values())
