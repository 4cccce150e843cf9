"""Runs the host-only C++ tests of tests/cpp, which the build puts beside the libraries when SLUICE_TESTS is on."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

from common import ROOT
from cpp_tests import BINARY


@pytest.mark.skipif(not BINARY.exists(), reason="built with SLUICE_TESTS=OFF")
def test_host_side_of_the_kernels() -> None:
    result = subprocess.run([str(BINARY)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "0 failed checks" in result.stdout


NEEDS_CUDA = ("cuda_driver.cpp", "host_register.cpp")
ENGINE = ["tests/cpp/test_chunk_loop.cpp", "tests/cpp/test_transfer.cpp", "tests/cpp/main.cpp"]
ENGINE += [
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "kernels" / "transfer").glob("*.cpp"))
    if path.name not in NEEDS_CUDA
]
# Other files' functions.
MODES = "".join(
    f"int print_{name} {{ return 1; }}" for name in ("source(char**)", "entries()", "dense_sources(const char*)")
)
ORDERED = ["-missing_edge"]  # the engine's cases without the case that leaves an edge out


def compiled(sanitizer: str, sources: list[str], main: str, program: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """g++ on the sources and on a text, with a sanitizer: as one unit, which takes half the time.

    The unit is a file of the checkout, so that ccache knows it again.
    """
    flags = ["-std=c++20", "-O1", "-g1", f"-fsanitize={sanitizer}", "-I.", "-pthread"]
    unit = pathlib.Path("build/sanitized", f"{sanitizer}_{len(sources)}.cpp")
    (ROOT / unit).parent.mkdir(parents=True, exist_ok=True)
    (ROOT / unit).write_text("".join(f'#include "{source}"\n' for source in sources) + main)
    made = unit.with_suffix(".o")
    for command in (["-c", str(unit), "-o", str(made)], [str(made), "-o", str(program)]):
        ran = subprocess.run(["g++", *flags, *command], cwd=ROOT, capture_output=True, text=True)
        if ran.returncode != 0:
            break
    return ran


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_engine_has_no_data_races_and_no_stray_access(sanitizer: str, tmp_path: pathlib.Path) -> None:
    program = tmp_path / "engine"
    if compiled(sanitizer, [], "int main() {}", program).returncode != 0:
        pytest.skip(f"this g++ has no -fsanitize={sanitizer}")
    built = compiled(sanitizer, ENGINE, MODES, program)
    assert built.returncode == 0, built.stderr
    result = subprocess.run([str(program), *ORDERED], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[:4000]
    assert "0 failed checks" in result.stdout
    if sanitizer == "thread":  # an edge that is left out is a race, and seen, if not on a busy machine at every try
        command = [str(program), "a_missing_edge_is_seen"]
        tries = (subprocess.run(command, capture_output=True, text=True, timeout=300) for _ in range(10))
        assert any("data race" in one.stderr for one in tries)
