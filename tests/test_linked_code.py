"""The code of linked kernels, without a GPU: the source that the library makes, by NVRTC and nvJitLink, to SASS."""

from __future__ import annotations

import ctypes
import pathlib
import re
import subprocess
import sys

import pytest

from common import ROOT, SCHEDULES
from test_binary import cuobjdump

BINARY = ROOT / "build" / "cmake" / "sluice_test_kernels"
MODULES = ROOT / "build" / "cmake" / "modules"
# Those that the library has for NVRTC, and no others.
HEADERS = re.findall(r'\{"(kernels/[^"]+)", between', (ROOT / "kernels" / "linking" / "embedded.cpp").read_text())
FATBIN, LTOIR = 4, 3  # of nvJitLinkInputType
SIZES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


def library(name: str) -> ctypes.CDLL | None:
    """NVRTC or nvJitLink from the environment's packages: torch with CUDA brings them, and so does our own set-up."""
    for folder in sys.path:
        libraries = pathlib.Path(folder) / "nvidia" / "cu13" / "lib"
        for found in libraries.glob(f"{name}.so.13"):
            for part in libraries.glob(f"{name}-builtins.so.13*"):  # which NVRTC opens by its bare name
                ctypes.CDLL(str(part))
            return ctypes.CDLL(str(found))
    return None


def strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))


def read(size_of, get, handle: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    assert size_of(handle, ctypes.byref(size)) == 0
    data = ctypes.create_string_buffer(size.value)
    assert get(handle, data) == 0
    return data.raw


def compile_source(nvrtc: ctypes.CDLL, source: str) -> bytes:
    """LTO-IR, with the options of kernels/linking/compile.cpp."""
    program = ctypes.c_void_p()
    texts = [(ROOT / name).read_text() for name in HEADERS]
    count = len(HEADERS)
    assert nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"chain", count, strings(texts), strings(HEADERS)
    ) == 0  # fmt: skip
    options = ["--gpu-architecture=compute_90a", "-std=c++17", "-dlto", "--fmad=false", "-default-device"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), strings(options))
    log = read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode()
    assert status == 0, log
    return read(nvrtc.nvrtcGetLTOIRSize, nvrtc.nvrtcGetLTOIR, program)


def link(linker: ctypes.CDLL, kernel: str, module: bytes, chain: bytes) -> bytes:
    handle = ctypes.c_void_p()
    options = ["-arch=sm_90a", "-lto", "-O3", "-fma=0", f"-kernels-used={kernel}"]
    assert linker.nvJitLinkCreate(ctypes.byref(handle), len(options), strings(options)) == 0
    for kind, data in ((FATBIN, module), (LTOIR, chain)):
        assert linker.nvJitLinkAddData(handle, kind, data, ctypes.c_size_t(len(data)), b"input") == 0
    assert linker.nvJitLinkComplete(handle) == 0
    return read(linker.nvJitLinkGetLinkedCubinSize, linker.nvJitLinkGetLinkedCubin, handle)


@pytest.fixture(scope="module")
def tools() -> tuple[ctypes.CDLL, ctypes.CDLL, str]:
    nvrtc, linker, dump = library("libnvrtc"), library("libnvJitLink"), cuobjdump()
    if not (BINARY.exists() and MODULES.exists()):
        pytest.skip("not built here")
    if nvrtc is None or linker is None or dump is None:
        pytest.skip("NVRTC, nvJitLink or cuobjdump is not installed")
    return nvrtc, linker, dump


def linked(tools, tmp_path: pathlib.Path, chain: str, dtype: str, walk: str, schedule: str) -> tuple[str, str]:
    """SASS and resource usage of transform's kernel with the chain."""
    size = SIZES[dtype]
    groups = (2 if walk == "rows" else 1) if schedule == "direct" else (2 if size == 2 else 4)
    kernel, width = f"sluice_transform_{dtype}_{walk}_{schedule}", 16 // size
    return linked_kernel(tools, tmp_path, chain, dtype, "transform", kernel, (width, groups), schedule == "direct")


def linked_stencil(tools, tmp_path: pathlib.Path, chain: str, dtype: str, entry: str) -> tuple[str, str]:
    """The same of a kernel of filter2d: patches of eight columns (float64: four) by four rows, strips of a word."""
    shape = (4 if dtype == "float64" else 8, 4)
    if entry in ALIGNED:
        shape = (16 // SIZES[dtype], ALIGNED[entry])
    direct = entry in ("square3", "square5", "dense", "separable", *ALIGNED)
    return linked_kernel(tools, tmp_path, chain, dtype, "filter2d", f"sluice_filter2d_{dtype}_{entry}", shape, direct)


def linked_kernel(tools, tmp_path, chain, dtype, family, kernel, shape, direct) -> tuple[str, str]:
    nvrtc, linker, dump = tools
    arguments = [str(BINARY), "source", chain, dtype, *map(str, shape)]
    source = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    module = MODULES / f"{family}_{dtype}_{'direct' if direct else 'ring'}.fatbin"
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(link(linker, kernel, module.read_bytes(), compile_source(nvrtc, source)))
    run = [
        subprocess.run([dump, option, str(cubin)], capture_output=True, text=True, check=True).stdout
        for option in ("--dump-sass", "--dump-resource-usage")
    ]
    assert re.findall(r"Function : (\w+)", run[0]) == [kernel]  # and no other kernel of the module
    return run[0], run[1]


ALIGNED = {"aligned3": 4, "aligned5": 1}  # rows that their chains take at a time
TURN = {"float32": 3, "float16": 2, "bfloat16": 2}  # rows of a turn of aligned5's loop, by aligned_rows_ahead
CHAIN = "scale(1.5)|add($0)|silu|clamp($1,2)|gelu"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("walk", ["flat", "rows", "strided"])
def test_direct_kernels_store_words(tools, tmp_path: pathlib.Path, dtype: str, walk: str) -> None:
    sass, _ = linked(tools, tmp_path, "scale(1.5)|silu", dtype, walk, "direct")
    assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", sass)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("walk", ["flat", "rows", "strided"])
def test_direct_kernels_with_a_chain(tools, tmp_path: pathlib.Path, dtype: str, walk: str) -> None:
    sass, usage = linked(tools, tmp_path, CHAIN, dtype, walk, "direct")
    assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", sass)
    assert "LDGSTS" not in sass
    registers = int(re.findall(r"REG:(\d+)", usage)[0])
    assert registers <= (128 if dtype == "float64" else 80), usage
    # Products and sums stay apart, or the interpreter's bits would be others. What divides and what gelu is made of
    # has its own FMAs; a chain without them has none.
    plain, _ = linked(tools, tmp_path, "scale(1.5)|add($0,2)|mul($1)|shift(3)|relu", dtype, walk, "direct")
    assert not re.search(r"\b(FFMA|DFMA)\b", plain)


BULK = ("barrier", "bulk")  # from compute capability 9.0 on


def check_copies(sass: str, usage: str, schedule: str) -> None:
    """The copies that the schedule promises, 16 bytes wide and past the L1 cache, and nothing spilled."""
    copies = re.findall(r"LDGSTS\.[.\w]*", sass)
    assert bool(copies) == (schedule != "sync" and schedule not in BULK)
    assert all(".128" in copy and "BYPASS" in copy for copy in copies)
    assert ("UBLKCP" in sass) == (schedule in BULK)
    assert ("SYNCS" in sass) == (schedule not in ("sync", "cooperative", "thread_scope"))
    # Sleeping between two looks is what cuda::pipeline's own waits do, in CUDA 13.0; ours do not.
    if schedule in ("sync", "cooperative", "barrier", "thread_scope", "primitives", "bulk"):
        assert "NANOSLEEP" not in sass
    assert int(re.findall(r"STACK:(\d+)", usage)[0]) <= 64, usage


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_rings_with_a_chain_copy_as_they_promise(tools, tmp_path: pathlib.Path, schedule: str) -> None:
    check_copies(*linked(tools, tmp_path, CHAIN, "bfloat16", "flat", schedule), schedule)


def test_operands_that_a_chain_does_not_have_cost_nothing(tools, tmp_path: pathlib.Path) -> None:
    def registers(chain: str) -> int:
        return int(re.findall(r"REG:(\d+)", linked(tools, tmp_path, chain, "bfloat16", "flat", "direct")[1])[0])

    assert registers("scale(1.5)|relu") <= 32
    assert registers("scale(1.5)|add($0)") < registers("scale(1.5)|add($0)|add($1)|add($2)|add($3)|add($4)")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("entry", ["square3", "square5", "dense", "separable"])
def test_direct_stencils_move_words(tools, tmp_path: pathlib.Path, dtype: str, entry: str) -> None:
    sass, _ = linked_stencil(tools, tmp_path, "scale(1.5)|silu", dtype, entry)
    assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", sass)
    assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", sass)
    assert "LDGSTS" not in sass


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("entry", ["aligned3", "aligned5"])
def test_stencils_of_aligned_rows_move_words_and_spill_nothing(
    tools, tmp_path: pathlib.Path, dtype: str, entry: str
) -> None:
    for chain in ("scale(1.5)|silu", "scale(1.5)|add($0)|silu"):
        sass, usage = linked_stencil(tools, tmp_path, chain, dtype, entry)
        assert len(re.findall(r"LD(?:G\.E|\.E)[.\w]*\.128", sass)) >= 4
        # A store for each row of a strip, or for those of a loop's turn and a single one; none of less than a word.
        rows = TURN[dtype] + 1 if entry == "aligned5" else 16 // SIZES[dtype]
        assert len(re.findall(r"\bST(?:G\.E|\.E)", sass)) == rows
        assert not re.findall(r"\bST(?:G\.E|\.E)(?![.\w]*\.128)", sass)
        assert not re.search(r"\b(LDL|STL)\b", sass)
        assert int(re.findall(r"REG:(\d+)", usage)[0]) <= 128, usage


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stencils_of_aligned_rows_keep_taps_in_uniform_registers(tools, tmp_path: pathlib.Path, dtype: str) -> None:
    sass, _ = linked_stencil(tools, tmp_path, "scale(1.5)|relu", dtype, "aligned5")
    products = re.findall(r"\bFFMA[^;]*", sass)
    # Of a turn's rows, of a single one, and of the 1 to 4 rows of taps that the rows before the first output meet.
    assert len(products) == (25 * (TURN[dtype] + 1) + 5 * 10) * 16 // SIZES[dtype]
    assert sum("UR" in product for product in products) > len(products) / 2


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
def test_stencils_with_a_ring_copy_as_they_promise(tools, tmp_path: pathlib.Path, schedule: str) -> None:
    check_copies(*linked_stencil(tools, tmp_path, CHAIN, "float32", schedule), schedule)


@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("layout", ["rows", "channels"])
def test_convolutions_with_a_ring_copy_as_they_promise(
    tools, tmp_path: pathlib.Path, schedule: str, layout: str
) -> None:
    shape = (16, 1) if layout == "rows" else (8, 4)
    kernel = f"sluice_conv1d_{layout}_bfloat16_{schedule}"
    check_copies(*linked_kernel(tools, tmp_path, CHAIN, "bfloat16", f"conv1d_{layout}", kernel, shape, False), schedule)
