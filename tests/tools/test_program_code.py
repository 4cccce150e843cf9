"""Programs that run only on a GPU: they compile, and their code does what they measure."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

from common import ROOT
from offline_linker import cuobjdump, functions

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")


def compiled(source: str, cubin: pathlib.Path) -> dict[str, str]:
    """SASS for 9.0a by the function's name in C++."""
    nvcc, dump = shutil.which("nvcc"), cuobjdump()
    if nvcc is None or dump is None:
        pytest.skip("nvcc or cuobjdump is not installed")
    options = ["-std=c++20", "-O3", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{ROOT}"]
    subprocess.run([nvcc, *options, "-cubin", source, "-o", str(cubin)], cwd=ROOT, check=True)
    sass = subprocess.run([dump, "--dump-sass", str(cubin)], capture_output=True, text=True, check=True).stdout
    return dict(functions(sass))


def loops_around(sass: str, opcode: str) -> list[int]:
    """How many loops each of these instructions stands in."""
    code = [(int(at, 16), text) for at, text in INSTRUCTION.findall(sass)]
    backward = [(int(to[0], 16), at) for at, text in code if (to := re.findall(r"\bBRA\b.* 0x([0-9a-f]+)", text))]
    loops = {begin: end for begin, end in sorted(backward) if begin < end}
    return [
        sum(begin <= at <= end for begin, end in loops.items())
        for at, text in code
        if re.search(rf"\b{opcode}\b", text)
    ]


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The rings of pipeline_facts, named by their policies: "OwnWords 4 WordByWord 16 PastL1 Batches Converged ..."."""
    code = compiled("benchmarks/pipeline_facts.cu", tmp_path_factory.mktemp("facts") / "facts.cubin")
    named = {name: re.findall(r"S_\d+([A-Z][A-Za-z]*?1?)(?=[EIN])|Li(\d+)E", name) for name in code}
    return {" ".join(policy or number for policy, number in named[name]): code[name] for name in code}


def having(rings: dict[str, str], policies: str) -> list[str]:
    """The code of the rings with these policies, for comparison."""
    found = [code for name, code in rings.items() if policies in name]
    assert found, (policies, list(rings))
    return found


def test_a_diverged_warp_commits_and_arrives_lane_by_lane(rings: dict[str, str]) -> None:
    for who, loops in (("Converged", 0), ("Reconverged", 0), ("Diverged", 1)):
        copies = "OwnWords 4 WordByWord 16 PastL1"
        (commits,) = having(rings, f"{copies} Batches {who} Nobody")
        (arrives,) = having(rings, f"{copies} Arrivals {who}")
        # The first stages are filled in front of the ring's own loop.
        assert min(loops_around(commits, "LDGDEPBAR")) == loops
        assert min(loops_around(arrives, "ARRIVES")) == loops


def test_who_meets_at_which_barrier(rings: dict[str, str]) -> None:
    for readers, has_barrier in (("Nobody", False), ("OneWarp", False), ("WholeBlock", True)):
        for code in having(rings, f"Batches Converged {readers}"):
            assert ("BAR.SYNC" in code) == has_barrier


def test_a_copy_goes_through_l1_or_past_it(rings: dict[str, str]) -> None:
    for cached, bypasses in (("InL1", False), ("PastL1", True)):
        for code in having(rings, f"WordByWord 16 {cached} Batches Converged"):
            copies = re.findall(r"LDGSTS\S*", code)
            assert copies
            assert all(("BYPASS" in copy) == bypasses for copy in copies)


def test_a_promise_of_128_bytes_compiles_to_the_code_of_one_of_16(rings: dict[str, str]) -> None:
    code = {n: INSTRUCTION.findall(having(rings, f"Promised {n} ")[0]) for n in (4, 16, 128)}
    assert code[128] == code[16]
    for bytes_promised, copy in ((4, "LDGSTS.E"), (16, "LDGSTS.E.BYPASS.128")):
        assert {text.split()[0] for _, text in code[bytes_promised] if "LDGSTS" in text} == {copy}


@pytest.mark.parametrize("source", ["tests/gpu/traps.cu", "tests/gpu/stream_cases.cu", "benchmarks/shared_layouts.cu"])
def test_a_program_compiles(source: str, tmp_path: pathlib.Path) -> None:
    assert compiled(source, tmp_path / "program.cubin")
