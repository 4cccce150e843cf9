"""A random test that fails can be run again: pytest and the C++ tests print the seed, and take it."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from common import ROOT
from cpp_tests import BINARY

FAILS = """
import random
import torch
def test_fails():
    drawn = torch.rand(1).item(), random.Random(torch.initial_seed()).random()
    torch.manual_seed(0)
    assert drawn == 0
def test_passes(): pass
"""


def test_a_failing_tests_seed_is_printed_and_draws_the_same(tmp_path: pathlib.Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILS)

    def run(*options: str) -> str:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "random_seed",
            "-p",
            "no:cacheprovider",
            *options,
            "test_it.py",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "helpers")}
        result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert "1 failed, 1 passed" in result.stdout, result.stdout + result.stderr
        return result.stdout

    def drawn(text: str) -> str:
        return re.findall(r"assert \((.+)\) == 0", text)[0]

    first = run()
    (seed,) = re.findall(r"--seed=(\d+) draws the same numbers", first)
    again = run(f"--seed={seed}")
    assert drawn(again) == drawn(first)
    assert f"--seed={seed} draws" in again
    assert drawn(run()) != drawn(first)


@pytest.mark.skipif(not BINARY.exists(), reason="built with SLUICE_TESTS=OFF")
def test_the_cpp_tests_print_their_seed() -> None:
    for given in ({}, {"SLUICE_TEST_SEED": "12345"}):
        command = [str(BINARY), "a_stride_of_one_is_one_phase"]
        result = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True)
        (seed,) = re.findall(r"^random seed (\d+): SLUICE_TEST_SEED=\1 draws the same$", result.stdout, re.MULTILINE)
        assert not given or seed == "12345"
