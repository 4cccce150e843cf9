"""Prelinked chains: they are the promised chains, and a request finds them."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import sluice
from offline_linker import (
    BUILD,
    OfflineLinker,
    cuobjdump,
    dense_sources,
    digest_text,
    kernels_of_list,
    modules,
    prelinked,
)
from pretended_libraries import COMPILER, pretender
from sluice import stages

pytestmark = pytest.mark.no_gpu
PROMISED = {
    "relu": stages.relu(),
    "leaky_relu": stages.leaky_relu(0.1),
    "gelu": stages.gelu(),
    "silu": stages.silu(),
    "snake": stages.snake(torch.ones(64, 1)),
}
IN_CHANNELS = ("relu", "gelu")  # chains of channels-last results too
A_TILE = len(PROMISED) + len(IN_CHANNELS)
COUNT = 14 * A_TILE
PRELINK = BUILD / "sluice_prelink"


@pytest.fixture(scope="module")
def linker() -> OfflineLinker:
    linker = OfflineLinker()
    if linker.missing or not PRELINK.exists():
        pytest.skip(linker.missing or "built without the program that links them")
    return linker


@pytest.fixture(scope="module")
def found(linker: OfflineLinker) -> dict[str, bytes]:
    """The linked kernels in the built library."""
    if not (found := prelinked()):
        pytest.skip("built with SLUICE_PRELINK=OFF")
    return found


def prelink(folder: pathlib.Path, tile: str, libraries: list[pathlib.Path]) -> tuple[dict[str, bytes], str]:
    """The list that the build's program writes with these libraries ahead of others, and what it says."""
    fatbinary = shutil.which("fatbinary") or "/usr/local/cuda/bin/fatbinary"
    # The cache that the build has: what it linked is not linked again.
    cache = pathlib.Path(os.environ.get("SLUICE_PRELINK_CACHE") or BUILD / "prelinked" / "cache")
    command = [PRELINK, f"conv1d_dense_{tile}", fatbinary, cache, folder / "list"]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return kernels_of_list(folder / "list"), result.stderr


def name_of(linker: OfflineLinker, kernel: str, source: str) -> str:
    options = [*linker.compile_options(), *linker.link_options(kernel)]
    return digest_text("".join(f" {option}" for option in options) + "\n" + source)


def check_promises(linker: OfflineLinker, found: dict[str, bytes], tile: str) -> None:
    """Among kernels whose names end with `tile`, exactly the kernels with promised chains are there."""
    promises = 0
    for chain, promised in PROMISED.items():
        for kernel, source in dense_sources(promised.text).items():
            if kernel.endswith(f"_{tile}") or not tile:
                is_promised = "_positions_" in kernel or chain in IN_CHANNELS
                assert bool(found.get(name_of(linker, kernel, source))) == is_promised, (kernel, chain)
                promises += is_promised
    assert promises == len(found)
    for other in (stages.snake(1.0), stages.relu() | stages.scale(2.0), stages.tanh()):
        for kernel, source in dense_sources(other.text).items():
            assert name_of(linker, kernel, source) not in found
    for kernel, source in dense_sources(stages.gelu().text).items():
        half = "{1, 0, 1, 0, }" if "_float16_" in kernel else "{2, 0, 2, 0, }"
        assert half in source
        assert name_of(linker, kernel, source.replace(half, "{0" + half[2:])) not in found  # a float32 result


def test_a_list_has_what_a_link_at_run_time_makes(linker: OfflineLinker, tmp_path: pathlib.Path) -> None:
    tile = "float16_1x64"  # one module's links take half a minute; names and chains know no tile
    found, _ = prelink(tmp_path, tile, [pathlib.Path(folder) / "nvidia" / "cu13" / "lib" for folder in sys.path])
    assert len(found) == A_TILE
    check_promises(linker, found, tile)
    dump = cuobjdump()
    if dump is None:
        pytest.skip("cuobjdump is not installed")
    kernel = f"sluice_conv1d_dense_positions_{tile}"
    source = dense_sources(PROMISED["leaky_relu"].text)[kernel]
    fatbin = tmp_path / "kernel.fatbin"
    fatbin.write_bytes(found[name_of(linker, kernel, source)])
    assert fatbin.stat().st_size < 40_000  # bytes, compressed from 75,000 and more
    subprocess.run([dump, "-xelf", "all", str(fatbin)], cwd=tmp_path, check=True, capture_output=True)
    (cubin,) = tmp_path.glob("*.cubin")
    module = modules()[f"conv1d_dense_{tile}"].read_bytes()
    assert cubin.read_bytes() == linker.link([kernel], module, linker.compile(source))


def test_the_library_has_them_for_every_tile(linker: OfflineLinker, found: dict[str, bytes]) -> None:
    assert len(dense_sources(PROMISED["relu"].text)) == 28
    assert len(found) == COUNT
    check_promises(linker, found, "")


@pytest.mark.skipif(not hasattr(torch.ops.sluice, "_link_info"), reason="built without CUDA")
def test_info_counts_them(linker: OfflineLinker) -> None:
    # The chains that the library in place has. A wheel's build leaves its lists beside a library that has none.
    library = (pathlib.Path(sluice.__file__).parent / "_C_cuda.so").read_bytes()
    counted = sum(name.encode() in library for name in prelinked())
    assert counted in (0, COUNT)
    assert sluice.info()["linking"]["prelinked"] == counted
    assert sluice.info()["linking"]["read_from_library"] == 0


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_a_build_without_the_libraries_has_none(linker: OfflineLinker, tmp_path: pathlib.Path) -> None:
    """One of the two libraries is too old here."""
    pretender(tmp_path, "libnvrtc.so.13", (12, 9))
    written, said = prelink(tmp_path, "float16_1x64", [tmp_path])
    assert written == {}
    assert "no chain is prelinked with conv1d_dense_float16_1x64: kernels built with CUDA" in said
