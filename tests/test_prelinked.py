"""Chains that come linked with the library: that they are the ones promised, and that a request finds them."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
import torch

import sluice
from offline_linker import BUILD, OfflineLinker, cuobjdump, dense_sources, digest_text, modules, prelinked
from sluice import stages
from test_link_libraries import COMPILER, pretender

PROMISED = {
    "relu": stages.relu(),
    "leaky_relu": stages.leaky_relu(0.1),
    "gelu": stages.gelu(),
    "silu": stages.silu(),
    "snake": stages.snake(torch.ones(64, 1)),
}
IN_CHANNELS = ("relu", "gelu")  # behind channels-last results too
COUNT = 14 * (len(PROMISED) + len(IN_CHANNELS))
PRELINK = BUILD / "sluice_prelink"


@pytest.fixture(scope="module")
def linker() -> OfflineLinker:
    linker = OfflineLinker()
    if linker.missing or not PRELINK.exists():
        pytest.skip(linker.missing or "built without chains that come linked")
    return linker


def name_of(linker: OfflineLinker, kernel: str, source: str) -> str:
    options = [*linker.compile_options(), *linker.link_options(kernel)]
    return digest_text("".join(f" {option}" for option in options) + "\n" + source)


@pytest.mark.parametrize("chain", PROMISED)
def test_every_plans_kernel_is_there_with_every_promised_chain(linker: OfflineLinker, chain: str) -> None:
    sources, found = dense_sources(PROMISED[chain].text), prelinked()
    assert len(sources) == 28
    for kernel, source in sources.items():
        is_promised = kernel.endswith("_positions") or chain in IN_CHANNELS
        assert bool(found.get(name_of(linker, kernel, source))) == is_promised, kernel


def test_other_chains_and_dtypes_are_not(linker: OfflineLinker) -> None:
    found = prelinked()
    assert len(found) == COUNT
    for chain in (stages.snake(1.0), stages.relu() | stages.scale(2.0), stages.tanh()):
        for kernel, source in dense_sources(chain.text).items():
            assert name_of(linker, kernel, source) not in found
    sources = dense_sources(stages.gelu().text)
    for kernel, source in sources.items():
        half = "{1, 0, 1, 0, }" if "_float16_" in kernel else "{2, 0, 2, 0, }"
        assert half in source
        assert name_of(linker, kernel, source.replace(half, "{0" + half[2:])) not in found  # a float32 result


@pytest.mark.skipif(not hasattr(torch.ops.sluice, "_link_info"), reason="built without CUDA")
def test_info_counts_them(linker: OfflineLinker) -> None:
    assert sluice.info()["linking"]["prelinked"] == COUNT
    assert sluice.info()["linking"]["read_from_library"] == 0


@pytest.mark.parametrize("tile", ["float16_1x64", "bfloat16_4x32"])
def test_they_are_what_a_link_at_run_time_makes(linker: OfflineLinker, tmp_path: pathlib.Path, tile: str) -> None:
    dump = cuobjdump()
    if dump is None:
        pytest.skip("cuobjdump is not installed")
    kernel = f"sluice_conv1d_dense_{tile}_positions"
    source = dense_sources(PROMISED["leaky_relu"].text)[kernel]
    fatbin = tmp_path / "kernel.fatbin"
    fatbin.write_bytes(prelinked()[name_of(linker, kernel, source)])
    assert fatbin.stat().st_size < 40_000  # of 75,000 and more
    subprocess.run([dump, "-xelf", "all", str(fatbin)], cwd=tmp_path, check=True, capture_output=True)
    (cubin,) = tmp_path.glob("*.cubin")
    module = modules()[f"conv1d_dense_{tile}"].read_bytes()
    assert cubin.read_bytes() == linker.link(kernel, module, linker.compile(source))


def prelink(folder: pathlib.Path, libraries: pathlib.Path | str) -> tuple[bytes, str]:
    """The list that the build's program writes with these libraries ahead of others, and what it says."""
    fatbinary = shutil.which("fatbinary") or "/usr/local/cuda/bin/fatbinary"
    command = [PRELINK, "conv1d_dense_float16_1x64", fatbinary, BUILD / "prelinked" / "cache", folder / "list"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return (folder / "list").read_bytes(), result.stderr


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_a_build_without_the_libraries_has_none(linker: OfflineLinker, tmp_path: pathlib.Path) -> None:
    """Of which one is too old here."""
    pretender(tmp_path, "libnvrtc.so.13", (12, 9))
    written, said = prelink(tmp_path, tmp_path)
    assert written == b""
    assert "no chain comes linked with conv1d_dense_float16_1x64: kernels built with CUDA" in said
