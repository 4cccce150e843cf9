"""Prelinked chains: the first call runs them without waiting for a compiler."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

import pytest
import torch

import sluice
from link_processes import result_of, start_process
from linked_forms import linking
from marks import ON_TENSOR_CORES
from offline_linker import PRELINKED, prelinked

pytestmark = ON_TENSOR_CORES

# Every promised chain after convolutions of both dtypes and layouts: only two chains where the layout is channels-last.
# Every tile is some plan's.
PROGRAM = """
import itertools, json, re, time, torch, sluice
from linked_forms import interpreted, linking
from sluice import stages

# The first is so small that other chains are interpreted twice before they are linked.
cases = [(32, 100), (64, 9000), (32, 20_000), (64, 20_000), (96, 9000), (128, 9000), (128, 60_000)]
calls, kernels, slowest = [], set(), 0.0
TILES = r"tiles of (\\d+) positions x (\\d+) channels(, ping-pong)?;"
for dtype, (channels, length) in itertools.product((torch.float16, torch.bfloat16), cases[:CASES]):
    x = torch.randn(3, channels, length, device="cuda", dtype=dtype)
    w = torch.randn(channels, channels, 3, device="cuda", dtype=dtype) / (3 * channels) ** 0.5
    b, alpha = torch.randn(channels, device="cuda", dtype=dtype), torch.rand(channels, 1, device="cuda", dtype=dtype)
    for by_channels, bias in itertools.product((False, True), (b, None)):
        source = x.transpose(1, 2).contiguous().transpose(1, 2) if by_channels else x
        posts = stages.relu(), stages.gelu(), stages.leaky_relu(0.1), stages.silu(), stages.snake(alpha)
        for post in posts[: 2 if by_channels else 5]:
            plan = sluice.plan("conv1d", source, w, bias, padding=1, post=post)
            assert plan.method == "dense"
            positions, width, is_pingpong = re.match(TILES, plan.detail).groups()
            kernel = int(positions) * (2 if is_pingpong else 1), width  # ping-pong tiles are halves of a kernel's
            kernels.add((dtype, by_channels, post.text, kernel))
            calls.append(lambda s=source, w=w, b=bias, p=post: sluice.conv1d(s, w, b, padding=1, post=p))
wanted = [interpreted(call) for call in calls]
torch.cuda.synchronize()
before, right = linking(), True
for call, want in zip(calls, wanted):
    start = time.perf_counter()
    result = call()
    slowest = max(slowest, time.perf_counter() - start)
    right = right and torch.equal(result, want)
after = linking()
linked = after["linked_launches"] - before["linked_launches"]
print(json.dumps({**after, "calls": len(calls), "kernels": len(kernels), "right": right, "slowest": slowest,
                  "linked": linked}))
"""


def program(cases: int) -> str:
    return PROGRAM.replace("CASES", str(cases))


@pytest.fixture(autouse=True)
def _comes_linked() -> None:
    if linking()["prelinked"] == 0:
        pytest.skip("built without NVRTC or nvJitLink at hand: no chain comes linked")
    assert linking()["mode"] == "auto"


def test_no_promised_chain_is_compiled(tmp_path: pathlib.Path) -> None:
    result = result_of(start_process(tmp_path, program=program(7)))
    assert result["right"]
    assert result["kernels"] >= 4 * 2 * (5 + 2)  # as many of seven tiles as plans choose
    assert (result["compiled"], result["read_from_disk"], result["compile_seconds"]) == (0, 0, 0)
    assert result["linked"] == result["calls"]  # small problems at once too
    assert result["read_from_library"] == result["linked_kernels"] == result["kernels"]
    assert not any(tmp_path.iterdir())
    assert result["slowest"] < 0.25  # a link takes 0.5 s


def test_prepare_finds_them() -> None:
    x = torch.randn(2, 64, 1000, device="cuda", dtype=torch.float16)
    w = torch.randn(64, 64, 3, device="cuda", dtype=torch.float16)
    before = linking()
    assert sluice.prepare(sluice.stages.gelu(), x, w, op="conv1d", padding=1) == ""
    assert [linking()[name] for name in ("compiled", "read_from_disk")] == [
        before[name] for name in ("compiled", "read_from_disk")
    ]


@pytest.mark.skipif(not PRELINKED.exists(), reason="needs the built tree, to find them in the library")
def test_damaged_ones_are_linked_as_they_come(tmp_path: pathlib.Path) -> None:
    """A copy of the package in which all prelinked kernels are damaged."""
    package = pathlib.Path(sluice.__file__).parent
    shutil.copytree(package, tmp_path / "sluice", ignore=shutil.ignore_patterns("__pycache__"))
    library = tmp_path / "sluice" / "_C_cuda.so"
    data = library.read_bytes()
    start = data.index(next(iter(prelinked())).encode())
    count = linking()["prelinked"]
    broken = bytearray(data)
    for _ in range(count):
        size = int.from_bytes(data[start + 32 : start + 40], "little")
        broken[start + 40 : start + 44] = b"none"  # the magic number of a fatbin
        start += 40 + size
    library.write_bytes(broken)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    result = result_of(start_process(tmp_path / "cache", program=program(1), PYTHONPATH=paths))
    assert result["right"]
    assert result["prelinked"] == count
    assert (result["read_from_library"], result["failed"]) == (0, 0)
    assert result["compiled"] == result["linked_kernels"] == result["kernels"]
