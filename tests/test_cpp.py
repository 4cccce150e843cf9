"""Runs the host-only C++ tests of tests/cpp, which the build puts beside the libraries when SLUICE_TESTS is on."""

from __future__ import annotations

import subprocess

import pytest

from common import ROOT

BINARY = ROOT / "build" / "cmake" / "sluice_test_kernels"


@pytest.mark.skipif(not BINARY.exists(), reason="built with SLUICE_TESTS=OFF")
def test_host_side_of_the_kernels() -> None:
    result = subprocess.run([str(BINARY)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "0 failed checks" in result.stdout
