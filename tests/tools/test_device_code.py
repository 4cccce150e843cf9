"""Code for GPUs that are not there: the kernels of mma.sync compiled for each generation, and a chain linked for it."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import pytest

import sluice
from common import ROOT
from offline_linker import OfflineLinker, cuobjdump, entries, functions, modules, source_of
from sluice.info import code_of

BUILT_FOR_EACH = "80, 90a and PTX for 80" in sluice.info()["build"]
ARCHITECTURES = ["80", "86", "100", "120"]
REGISTERS_OF_AN_SM = 65536
SOURCE = """
#include "kernels/operators/conv1d/dense/portable/portable.cuh"
#include "kernels/operators/conv1d/few_outputs/few_outputs.cuh"
#include "kernels/operators/conv1d/long_filter/long_filter_channels.cuh"
#include "kernels/operators/conv1d/long_filter/long_filter.cuh"
#include "kernels/operators/filter2d/toeplitz.cuh"
namespace sluice {
template <class Element, int Blocks, int Channels>
void* portable() { return (void*)&portable_kernel<Element, Blocks, Channels, false, PortableDenseArguments>; }
void* kernels[] = {
  portable<__half, 4, 64>(), portable<__half, 2, 64>(), portable<float, 4, 64>(), portable<float, 2, 64>(),
  (void*)&plain_few_outputs_kernel<__half, kFewColumns, false>, (void*)&plain_long_filter_kernel<__half, true>,
  (void*)&plain_long_filter_channels_kernel<__half>, (void*)&plain_toeplitz_filter2d_kernel<__half>,
};
}
"""
# What the kernels' code must contain. The kernel for few outputs loads its input into registers, and spills some.
KERNELS = {
    "portable_kernel": {"HMMA", "LDSM", "LDGSTS"},
    "plain_few_outputs_kernel": {"HMMA"},
    "plain_long_filter_kernel": {"HMMA", "LDSM", "LDGSTS"},
    "plain_long_filter_channels_kernel": {"HMMA", "LDSM"},
    "plain_toeplitz_filter2d_kernel": {"HMMA", "LDSM"},
}
SPILLS = {"plain_few_outputs_kernel"}
THREADS = {"portable_kernel": 384}  # threads of a block; 256 of the others


@pytest.mark.skipif(not BUILT_FOR_EACH, reason="built for other GPUs")
def test_info_says_which_code_a_device_runs() -> None:
    codes = {
        (7, 5): "",
        (8, 0): "80",
        (8, 6): "80",
        (8, 9): "80",
        (9, 0): "90a",
        (10, 0): "80, PTX",
        (12, 1): "80, PTX",
    }
    assert {device: code_of(*device) for device in codes} == codes


def loops_with_products(sass: str) -> list[list[str]]:
    """The instructions of each innermost loop with a product on tensor cores."""
    lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);", sass)
    at = {int(address, 16): index for index, (address, _) in enumerate(lines)}
    jumps = [
        (at[int(target, 16)], index)
        for index, (_, text) in enumerate(lines)
        for target in re.findall(r"\bBRA\b.*?0x([0-9a-f]+)", text)
        if int(target, 16) in at
    ]
    back = sorted({(first, last) for first, last in jumps if first <= last}, key=lambda loop: loop[1] - loop[0])
    found: list[tuple[int, int]] = []
    for first, last in back:
        is_outer = any(first <= inner and end <= last for inner, end in found)
        if not is_outer and any("HMMA" in text for _, text in lines[first : last + 1]):
            found.append((first, last))
    return [[text for _, text in lines[first : last + 1]] for first, last in found]


@pytest.fixture(scope="module")
def tool() -> str:
    found = cuobjdump()
    if found is None or shutil.which("nvcc") is None:
        pytest.skip("cuobjdump or nvcc is not installed")
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_products_are_on_tensor_cores_without_spills(architecture: str, tool: str, tmp_path: pathlib.Path) -> None:
    source, fatbin = tmp_path / "kernels.cu", tmp_path / "kernels.fatbin"
    source.write_text(SOURCE)
    target = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
    options = ["-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", f"-I{ROOT}", target, "-c", "-fatbin"]
    ccache = [shutil.which("ccache")] if shutil.which("ccache") else []
    subprocess.run([*ccache, "nvcc", *options, str(source), "-o", str(fatbin)], check=True)
    read = [
        subprocess.run([tool, option, str(fatbin)], check=True, capture_output=True, text=True).stdout
        for option in ("--dump-sass", "--dump-resource-usage")
    ]
    usage = dict(re.findall(r"Function (\S+):\s*\n\s*(.*)", read[1]))
    seen = set()
    for name, body in functions(read[0]):
        (kernel,) = [kernel for kernel in KERNELS if f"{len(kernel)}{kernel}" in name]
        seen.add(kernel)
        assert KERNELS[kernel] <= set(re.findall(r"\b(HMMA|LDSM|LDGSTS)\b", body)), name
        copies = re.findall(r"LDGSTS\.\S*", body)
        assert all("BYPASS.128" in copy for copy in copies if ".128" in copy or kernel == "portable_kernel"), name
        registers, static = (int(re.findall(rf"{what}:(\d+)", usage[name])[0]) for what in ("REG", "SHARED"))
        assert registers * THREADS.get(kernel, 256) <= REGISTERS_OF_AN_SM
        assert static <= 1024  # which the driver has of 9.0 and later; the rest is dynamic
        loops = loops_with_products(body)
        assert loops, name
        for loop in loops if kernel not in SPILLS else []:
            spills, products = (len(re.findall(word, "\n".join(loop))) for word in (r"\b(?:LDL|STL)\b", r"\bHMMA\b"))
            # A tap's addresses may be spilled. Half types also need a loop without spills, that of rows of 128 bytes.
            most = products // 8 if kernel == "portable_kernel" else 0
            assert spills <= most, (name, spills, products)
        if kernel == "portable_kernel" and "__half" in name:
            assert any(not re.search(r"\b(LDL|STL)\b", "\n".join(loop)) for loop in loops), name
    assert seen == set(KERNELS)


@pytest.mark.parametrize("architecture", ["86", "89", "100", "120"])
def test_a_chain_links_from_the_code_for_8_0(architecture: str, tool: str, tmp_path: pathlib.Path) -> None:
    linker = OfflineLinker("80", architecture)
    if linker.missing:
        pytest.skip(linker.missing)
    kernel = "sluice_conv1d_portable_channels_float16_2x64"
    entry = entries()[kernel]
    chain = linker.compile(source_of("gelu|add($0)", entry.dtype, entry.width, entry.slices))
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(linker.link([kernel], modules()[entry.module].read_bytes(), chain))
    sass = subprocess.run([tool, "--dump-sass", str(cubin)], check=True, capture_output=True, text=True).stdout
    assert [name for name, _ in functions(sass)] == [kernel]
    assert "HMMA.16816.F32" in sass
    assert f"sm_{architecture}" in sass
