"""Where the build puts the host-only C++ tests."""

from __future__ import annotations

from common import ROOT

BINARY = ROOT / "build" / "cmake" / "sluice_test_kernels"
