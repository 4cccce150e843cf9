"""The built libraries: loading, errors of loading, and the generated code of each schedule."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch

from common import DTYPES, ROOT, SCHEDULES
from offline_linker import OfflineLinker, cuobjdump, entries, functions, kernels_in, modules, objects
from python_process import PACKAGE, python

CUDA_LIBRARY = PACKAGE / "_C_cuda.so"
needs_cuda_library = pytest.mark.skipif(not CUDA_LIBRARY.exists(), reason="built without CUDA")


@needs_cuda_library
@pytest.mark.parametrize(
    "op",
    ["transform", "conv1d", "conv_transpose1d", "causal_conv1d", "causal_conv1d_final_states", "filter2d"]
    + ["causal_conv1d_update"],
)
def test_cuda_kernels_are_registered_under_any_torch(op: str) -> None:
    for name in (op, f"{op}_out"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"sluice::{name}", "CUDA")
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"sluice::{name}", "CPU")


def test_an_old_torch_is_named() -> None:
    code = "import torch; torch.__version__ = '2.10.1+cpu'; import sluice"
    result = python(code)
    assert result.returncode != 0
    assert "ImportError: sluice needs torch >= 2.11, got torch 2.10.1+cpu" in result.stderr
    assert "undefined symbol" not in result.stderr


def test_a_missing_torch_is_named() -> None:
    code = "import sys; sys.modules['torch'] = None; import sluice"
    result = python(code)
    assert result.returncode != 0
    assert "No module named 'torch'" in result.stderr or "import of torch halted" in result.stderr


def test_a_library_that_does_not_load_is_explained(tmp_path: pathlib.Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "sluice", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    result = python("import sluice", PYTHONPATH=str(tmp_path))
    assert "ImportError: sluice:" in result.stderr
    assert "_C.so is missing" in result.stderr
    (tmp_path / "sluice" / "_C.so").write_bytes(b"not a library")
    result = python("import sluice", PYTHONPATH=str(tmp_path))
    assert "ImportError: sluice: _C.so does not load under torch" in result.stderr


def test_without_cuda_kernels_the_cpu_works_and_the_reason_is_said() -> None:
    code = "import sluice, torch; print(sluice.info()['cuda_kernels'], sluice.stages.relu()(torch.ones(1)))"
    result = python(code, SLUICE_LOAD_CUDA="0")
    assert result.returncode == 0, result.stderr
    assert "SLUICE_LOAD_CUDA=0 is set tensor([1.])" in result.stdout


def test_a_second_copy_is_refused() -> None:
    code = (
        "import sluice, sys; [sys.modules.pop(m) for m in list(sys.modules) if m.startswith('sluice')]; import sluice"
    )
    result = python(code)
    assert "another copy of the library is loaded" in result.stderr


def cpu_objects() -> dict[str, list[pathlib.Path]]:
    """The built objects of CPU kernels, by their instruction sets."""
    commands = ROOT / "build" / "cmake" / "compile_commands.json"
    found: dict[str, list[pathlib.Path]] = {}
    if commands.exists():
        for output in re.findall(r" -o (\S*sluice_cpu_\w+[.]dir/\S+[.]o)\b", commands.read_text()):
            name = output.split("sluice_cpu_")[1].split(".dir")[0]
            found.setdefault(name, []).append(commands.parent / output)
    return found


@pytest.mark.skipif(shutil.which("nm") is None or not cpu_objects(), reason="no nm, or the library was not built here")
def test_instruction_sets_share_no_function() -> None:
    # The linker keeps one copy of an inline function for all: code for AVX-512 would run on machines without it.
    number = {"baseline": 0, "avx2": 1, "avx512": 2}  # of kernels/shared/cpu/instruction_set.h
    for name, paths in cpu_objects().items():
        for path in paths:
            command = ["nm", "--defined-only", "--extern-only", "--demangle", str(path)]
            symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            assert symbols, path
            for symbol in symbols:
                _, kind, function = symbol.split(" ", 2)
                if function == "DW.ref.__gxx_personality_v0":  # a pointer that all sources with destructors have
                    continue
                assert kind == "T", f"{path}: {function}"
                assert f"<(sluice::InstructionSet){number[name]}" in function, f"{path}: {function}"


def test_the_module_is_a_command() -> None:
    result = subprocess.run([sys.executable, "-m", "sluice", "info"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert '"cuda_kernels"' in result.stdout


@pytest.fixture(scope="module")
def sass() -> dict[str, str]:
    """Kernel name -> SASS for sm_90a, of the bfloat16 kernels: the whole library takes a minute to read."""
    tool = cuobjdump()
    # A file may have the kernels of two dtypes.
    built = [path for name, path in objects().items() if re.search(r"_bfloat16(_float64)?[.]cu$", name)]
    if tool is None or not built:
        pytest.skip("cuobjdump is not installed, or the library was not built here")
    found: dict[str, str] = {}
    for path in built:
        command = [tool, "--dump-sass", "--gpu-architecture", "sm_90a", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found |= {name: body for name, body in functions(text) if "__nv_bfloat16" in name}
    return found


INSTANCES = 4  # kernels with a ring of a dtype: transform, conv1d by rows and by channels, and filter2d


@needs_cuda_library
def test_interpreted_rings_have_every_schedules_copies(sass: dict[str, str]) -> None:
    """Each kernel has all schedules; test_linked_code.py reads kernels of a single schedule."""
    kernels = {name: body for name, body in sass.items() if "staged_" in name}
    assert len(kernels) == INSTANCES
    for name, body in kernels.items():
        asynchronous = re.findall(r"LDGSTS\.[.\w]*", body)
        assert any("BYPASS.128" in copy for copy in asynchronous), name  # 16 bytes, past L1
        # Copies under 16 bytes are the parts of a row's first word that primitives copy.
        assert any(".128" not in copy for copy in asynchronous) == ("staged_channels" not in name), name
        assert all("BYPASS" in copy for copy in asynchronous if ".128" in copy), name
        assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", body), name  # sync's, through registers
        assert "UBLKCP" in body, name
        assert "SYNCS" in body, name
        assert "BAR.SYNC" in body, name


@needs_cuda_library
def test_direct_kernels_move_words_through_registers(sass: dict[str, str]) -> None:
    kernels = {
        name: body
        for name, body in sass.items()
        if re.search(r"direct_|plain_rows|few_taps_rows|\d(square|patches)_filter2d_kernel", name)
    }
    # transform; conv1d by rows, plain and with few taps too, each without a chain as well, and by channels; filter2d's
    # squares, patches and separable
    assert len(kernels) == 4 + 5 + 1 + 4
    # Channels-last with few taps: four channels a thread.
    [quads] = [body for name, body in sass.items() if "few_taps_channels_kernel" in name]
    assert len(re.findall(r"LD(?:G\.E|\.E)[.\w]*\.64", quads)) >= 16
    assert re.search(r"ST(G\.E|\.E)[.\w]*\.64", quads)
    # filter2d's squares on aligned rows, for outputs of the image's type and of any
    aligned = {name: body for name, body in sass.items() if re.search(r"\daligned_filter2d_kernel", name)}
    assert len(aligned) == 4
    for name, body in aligned.items():
        assert not re.search(r"\b(LDL|STL)\b", body), name
    # Also on unaligned rows, whose image has words of 16 bytes or, for uint8, of 4.
    unaligned = {name: body for name, body in sass.items() if "unaligned_filter2d_kernel" in name}
    assert len(unaligned) >= 1
    for name, body in unaligned.items():
        assert not re.search(r"\b(LDL|STL)\b", body), name
    for name, body in (kernels | aligned).items():
        assert "LDGSTS" not in body, name
        assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", body), name
        assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", body), name


@needs_cuda_library
def test_windows_stay_in_registers(sass: dict[str, str]) -> None:
    kernels = {name: body for name, body in sass.items() if re.search(r"window_(rows|channels)_kernel", name)}
    assert len(kernels) == 3  # rows, channels, pairs of channels
    for name, body in kernels.items():
        assert not re.search(r"\b(LDL|STL)\b", body), name


@needs_cuda_library
def test_long_filters_multiply_on_tensor_cores(sass: dict[str, str]) -> None:
    kernels = {name: body for name, body in sass.items() if re.search("(plain|interpreted)_long_filter", name)}
    assert len(kernels) == 6  # few steps, many, and channels last; without a chain, and with an interpreted one
    for name, body in kernels.items():
        assert "HMMA.16816.F32.BF16" in body, name
        assert re.search(r"LDSM[.\w]*\.M88\.4", body), name
        assert re.search(r"LDGSTS[.\w]*BYPASS[.\w]*\.128", body), name
        if "interpreted" not in name:
            assert not re.search(r"\b(LDL|STL)\b", body), name


def without_dtype(name: str) -> str:
    return re.sub("bfloat16|float16|float32|float64", "DTYPE", name)


@needs_cuda_library
def test_every_entry_is_in_its_module() -> None:
    """A module of each kind is read, which takes half a second: modules of other dtypes have the same text."""
    if missing := OfflineLinker().missing:
        pytest.skip(missing)
    named: dict[str, list[str]] = {}
    for kernel, entry in entries().items():
        named.setdefault(entry.module, []).append(kernel)
    assert set(named) == set(modules())
    kinds = {tuple(sorted(map(without_dtype, kernels))): name for name, kernels in named.items()}
    paths = {name: modules()[name] for name in kinds.values()}
    found = kernels_in(list(paths.values()))
    for name, path in paths.items():
        assert sorted(found[path]) == sorted(named[name])  # the kernels that plans can name, and no others


RESERVED = (
    1024  # bytes of a block's shared memory that are the driver's, from compute capability 9.0 on part of a kernel's
)


@needs_cuda_library
def test_plans_leave_room_for_the_static_shared_memory_of_kernels() -> None:
    tool = cuobjdump()
    built = [path for name, path in objects().items() if not name.endswith("/launch.cu")]
    if tool is None or not built:
        pytest.skip("cuobjdump is not installed, or the library was not built here")
    header = (ROOT / "kernels/shared/common/device_properties.h").read_text()
    most = int(re.findall(r"kStaticSharedMemory = (\d+);", header)[0])
    rings = (ROOT / "kernels/shared/pipeline/rings.def").read_text()
    table = re.findall(r"^SLUICE_RING\((\w+), .*, (\d+)\)", rings, re.MULTILINE)
    assert [name for name, _ in table] == SCHEDULES[1:]
    assert max(int(size) for _, size in table) == most  # pipes.cuh asserts each row
    static: dict[str, int] = {}
    for path in built:
        command = [tool, "--dump-resource-usage", "--gpu-architecture", "sm_90a", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for name, size in re.findall(r"Function (\S+):\s*\n.*SHARED:(\d+)", text):
            static[name] = max(0, int(size) - RESERVED)
    rings_found = [size for name, size in static.items() if "staged_" in name]
    assert rings_found == [most] * INSTANCES * len(DTYPES)  # rings of all schedules, in one place
    for name, size in static.items():
        # These have no dynamic shared memory.
        if not re.search("staged_|aligned_filter2d|update_words|sequences_rows", name):
            assert size == 0, name
