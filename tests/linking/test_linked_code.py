"""The code of linked kernels, without a GPU: the source that the library makes, by NVRTC and nvJitLink, to SASS.

A link takes one to three seconds. The two half types have the same templates, so a kernel is read in one of them.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from common import ROOT, SCHEDULES
from offline_linker import OfflineLinker, cuobjdump, entries, functions, modules, source_of

pytestmark = pytest.mark.no_gpu
SIZES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}


@pytest.fixture(scope="module")
def tools() -> tuple[OfflineLinker, str]:
    linker, dump = OfflineLinker(), cuobjdump()
    if linker.missing or dump is None:
        pytest.skip(linker.missing or "cuobjdump is not installed")
    return linker, dump


def linked_kernel(tools, tmp_path: pathlib.Path, chain: str, kernel: str) -> tuple[str, str]:
    """SASS and resource usage of the kernel with the chain."""
    return linked_kernels(tools, tmp_path, chain, [kernel])[kernel]


def linked_kernels(tools, tmp_path: pathlib.Path, chain: str, kernels: list[str]) -> dict[str, tuple[str, str]]:
    """The same of several that call the chain alike: cuobjdump takes a second, however little it reads."""
    linker, dump = tools
    (entry,) = {entries()[kernel] for kernel in kernels}
    cubin = tmp_path / "kernel.cubin"
    chain_code = linker.compile(source_of(chain, entry.dtype, entry.width, entry.slices))
    cubin.write_bytes(linker.link(kernels, modules()[entry.module].read_bytes(), chain_code))
    sass, usage = (read(dump, option, cubin) for option in ("--dump-sass", "--dump-resource-usage"))
    code, used = dict(functions(sass)), usage_of_functions(usage)
    assert set(code) == set(used) == set(kernels)  # and no other kernel of the module
    return {kernel: (code[kernel], used[kernel]) for kernel in kernels}


def read(dump: str, option: str, cubin: pathlib.Path) -> str:
    return subprocess.run([dump, option, str(cubin)], capture_output=True, text=True, check=True).stdout


def usage_of_functions(usage: str) -> dict[str, str]:
    return dict(re.findall(r"Function (\w+):\s*\n(.*)", usage))


def registers(usage: str) -> int:
    return int(re.findall(r"REG:(\d+)", usage)[0])


TURN = {"float32": 3, "float16": 2, "bfloat16": 2}  # rows of a turn of aligned5's loop, by aligned_rows_ahead
CHAIN = "scale(1.5)|add($0)|silu|clamp($1,2)|gelu"
WITHOUT_TENSORS = "scale(1.5)|silu"
WITH_A_TENSOR = "scale(1.5)|add($0)|silu"


# Each walk and each dtype once: a walk is one template of the dtype, and its words are 16 bytes in all.
@pytest.mark.parametrize(("walk", "dtype"), [("flat", "float32"), ("rows", "bfloat16"), ("strided", "float64")])
def test_direct_kernels_with_a_chain(tools, tmp_path: pathlib.Path, walk: str, dtype: str) -> None:
    kernel = f"sluice_transform_direct_{walk}_{dtype}"
    sass, usage = linked_kernel(tools, tmp_path, CHAIN, kernel)
    assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", sass)
    assert "LDGSTS" not in sass
    assert registers(usage) <= (128 if dtype == "float64" else 80), usage
    # Products and sums stay apart, or the interpreter's bits would be others. What divides and what gelu is made of
    # has its own FMAs; a chain without them has none.
    plain, _ = linked_kernel(tools, tmp_path, "scale(1.5)|add($0,2)|mul($1)|shift(3)|relu", kernel)
    assert not re.search(r"\b(FFMA|DFMA)\b", plain)
    assert all(re.search(r"ST(G\.E|\.E)[.\w]*\.128", one) for one in (sass, plain))


def unspilled_stencils(tools, tmp_path: pathlib.Path, dtype: str, names: list[str]) -> dict[str, str]:
    """The code of kernels of filter2d that must keep everything in registers."""
    kernels = {name: f"sluice_filter2d_{name}_{dtype}" for name in names}
    found = linked_kernels(tools, tmp_path, WITHOUT_TENSORS, list(kernels.values()))
    for sass, usage in found.values():
        assert not re.search(r"\b(LDL|STL)\b", sass)
        assert int(re.findall(r"STACK:(\d+)", usage)[0]) == 0
    return {name: found[kernel][0] for name, kernel in kernels.items()}


@pytest.mark.parametrize(  # bytes are computed in float32
    ("dtype", "names"),
    [("float32", ["unaligned3", "bytes_unaligned3", "bytes_unaligned5"]), ("float16", ["unaligned3"])],
)
def test_strips_on_rows_that_lie_anyhow(tools, tmp_path: pathlib.Path, dtype: str, names: list[str]) -> None:
    for name, sass in unspilled_stencils(tools, tmp_path, dtype, names).items():
        assert re.search(r"STG\.E[.\w]*\.128", sass), name
        assert bool(re.search(r"LDG\.E[.\w]*\.128", sass)) != name.startswith("bytes"), name


@pytest.mark.parametrize(
    ("dtype", "names"),
    [("float32", ["columns3", "columns5", "bytes_columns3", "bytes_columns5"]), ("float16", ["columns3", "columns5"])],
)
def test_columns_of_any_layout(tools, tmp_path: pathlib.Path, dtype: str, names: list[str]) -> None:
    for name, sass in unspilled_stencils(tools, tmp_path, dtype, names).items():
        assert "STS" in sass, name


def test_toeplitz_products_are_on_tensor_cores(tools, tmp_path: pathlib.Path) -> None:
    sass, usage = linked_kernel(tools, tmp_path, WITHOUT_TENSORS, "sluice_filter2d_toeplitz_float16")
    assert len(re.findall(r"HMMA[.\w]*", sass)) >= 32
    assert re.search(r"LDSM[.\w]*", sass)
    assert re.search(r"LD(?:G\.E|\.E)[.\w]*\.128", sass)
    assert registers(usage) <= 128


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])  # bfloat16 is computed in float32
def test_windows_pixel_by_pixel(tools, tmp_path: pathlib.Path, dtype: str) -> None:
    sass, usage = linked_kernel(tools, tmp_path, CHAIN, f"sluice_filter2d_sampled_{dtype}")
    assert registers(usage) <= 128
    assert not re.search(r"\bCALL\.ABS\b", sass)


BULK = ("barrier", "bulk")  # from compute capability 9.0 on
COPY_AND_WAIT = {"LDGSTS", "LDGDEPBAR", "DEPBAR", "ARRIVES", "SYNCS", "UBLKCP"}


def documented() -> dict[str, set[str]]:
    """The instructions that docs/pipeline.md says a schedule compiles to, without their widths."""
    found = {}
    for section in re.split(r"^### ", (ROOT / "docs" / "pipeline.md").read_text(), flags=re.MULTILINE)[1:]:
        (text,) = re.findall(r"\*Compiles to\*(.*?)(?:\*Wins\*|\n\n)", section, re.DOTALL)
        name = re.match(r"`(\w+)`", section)
        assert name is not None, section
        found[name[1]] = {word.partition(".")[0] for word in re.findall(r"`([A-Z][A-Z0-9.]+)`", text)}
    return found


def test_the_document_says_what_every_schedule_compiles_to() -> None:
    assert list(documented()) == list(SCHEDULES)
    assert documented()["direct"] == {"LDG", "STG"}


def check_copies(sass: str, usage: str, schedule: str, has_edges: bool) -> None:
    """The copies that the schedule promises, whole words past the L1 cache, and nothing spilled."""
    copies = set(re.findall(r"LDGSTS\.[.\w]*", sass))
    assert bool(copies) == (schedule != "sync" and schedule not in BULK)
    narrow = {copy for copy in copies if ".128" not in copy}
    assert all("BYPASS" in copy for copy in copies - narrow)
    # Only primitives copy a part of a word: of a row's first word in 4 and 8 bytes, of its last with zero-fill.
    copies_parts = schedule == "primitives" and has_edges
    assert {".64" in copy for copy in narrow} == ({True, False} if copies_parts else set())
    assert any(".128.ZFILL" in copy for copy in copies) == copies_parts
    # One for each place where a row can end, at two edges: the count of zeros is part of the instruction.
    assert len(re.findall(r"LDGSTS[.\w]*\.128\.ZFILL", sass)) <= 2 * 7
    assert ("UBLKCP" in sass) == (schedule in BULK)
    assert ("SYNCS" in sass) == (schedule not in ("sync", "cooperative", "thread_scope"))
    # Copies that have landed arrive on a barrier: cuda::pipeline's, or that of __pipeline_arrive_on.
    arrives = ("single_stage", "two_stage", "multi_stage", "producer_consumer", "primitives")
    assert ("ARRIVES" in sass) == (schedule in arrives)
    # Sleeping between two looks is what cuda::pipeline's own waits do, in CUDA 13.0; ours do not.
    if schedule in ("sync", "cooperative", "barrier", "thread_scope", "primitives", "bulk"):
        assert "NANOSLEEP" not in sass
    assert int(re.findall(r"STACK:(\d+)", usage)[0]) <= 64, usage


# transform's ring has every schedule's pipe. Other rings have the same pipes but fetch tiles of their own, in three
# ways: by copies of threads, the same with parts of words at edges, and in bulk. One schedule stands for each.
RINGS = {
    "transform_staged_flat_bfloat16": SCHEDULES[1:],
    "conv1d_staged_rows_bfloat16": ["multi_stage", "primitives", "bulk"],
    "conv1d_staged_channels_bfloat16": ["thread_scope", "primitives", "barrier"],
    "filter2d_staged_float32": ["cooperative", "primitives", "bulk"],
}


@pytest.mark.parametrize("ring", RINGS)
def test_rings_with_a_chain_copy_as_they_promise(tools, tmp_path: pathlib.Path, ring: str) -> None:
    kernels = {f"sluice_{ring}_{schedule}": schedule for schedule in RINGS[ring]}
    told = documented()
    for name, (sass, usage) in linked_kernels(tools, tmp_path, WITH_A_TENSOR, list(kernels)).items():
        check_copies(sass, usage, kernels[name], has_edges="channels" not in name)
        words = set(re.findall(r"\b[A-Z][A-Z0-9]+\b", sass))
        expected = told[kernels[name]]
        assert words & COPY_AND_WAIT <= expected, name
        # transform's ring runs with its threads' own words and with shared words, so it has all forms of the wait.
        assert expected <= words | ({"LDG"} if "transform" in name else COPY_AND_WAIT), name


def test_operands_that_a_chain_does_not_have_cost_nothing(tools, tmp_path: pathlib.Path) -> None:
    linker, dump = tools
    kernel = "sluice_transform_direct_flat_bfloat16"
    entry, cubin = entries()[kernel], tmp_path / "kernel.cubin"

    def registers_with(chain: str) -> int:
        chain_code = linker.compile(source_of(chain, entry.dtype, entry.width, entry.slices))
        cubin.write_bytes(linker.link([kernel], modules()[entry.module].read_bytes(), chain_code))
        return registers(usage_of_functions(read(dump, "--dump-resource-usage", cubin))[kernel])

    assert registers_with("scale(1.5)|relu") <= 32
    several = "scale(1.5)|add($0)|add($1)|add($2)|add($3)|add($4)"
    assert registers_with("scale(1.5)|add($0)") < registers_with(several)


@pytest.mark.parametrize(  # a thread has one channel of float32, a pair of bfloat16
    ("window", "dtype", "chain"),
    [
        ("rows", "float32", WITH_A_TENSOR),
        ("rows", "bfloat16", WITHOUT_TENSORS),
        ("channels", "float32", WITHOUT_TENSORS),
        ("channels_pairs", "bfloat16", WITH_A_TENSOR),
    ],
)
def test_windows_are_in_registers_and_nearly_all_is_products(
    tools, tmp_path: pathlib.Path, window: str, dtype: str, chain: str
) -> None:
    sass, _ = linked_kernel(tools, tmp_path, chain, f"sluice_conv1d_window_{window}_{dtype}")
    # Channels keep up to four numbers of a tile there, which the loop does not use.
    assert len(re.findall(r"\b(?:LDL|STL)\b", sass)) <= (0 if window == "rows" else 9)
    # The loop: from where a branch leads back to, to the branch.
    lines = [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", sass)]
    loops = []
    for at, text in lines:
        if (back := re.search(r"\bBRA 0x([0-9a-f]+)", text)) and int(back[1], 16) < at:
            loops.append([words for place, words in lines if int(back[1], 16) <= place <= at])
    share, loop = max((sum("FFMA" in text for text in loop) / len(loop), loop) for loop in loops if len(loop) > 200)
    assert share >= (0.9 if window == "rows" else 0.7), share
    assert not any(re.search(r"\b(LDL|STL)\b", text) for text in loop)


@pytest.mark.parametrize(  # each kernel once, each dtype
    ("dtype", "names"), [("float32", ["square3", "patches"]), ("bfloat16", ["square5"]), ("float64", ["separable"])]
)
def test_direct_stencils_move_words(tools, tmp_path: pathlib.Path, dtype: str, names: list[str]) -> None:
    kernels = [f"sluice_filter2d_{name}_{dtype}" for name in names]
    for sass, _ in linked_kernels(tools, tmp_path, "scale(1.5)|relu", kernels).values():
        assert re.search(r"LD(G\.E|\.E)[.\w]*\.128", sass)
        assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", sass)
        assert "LDGSTS" not in sass


def check_aligned(sass: str, usage: str, dtype: str, name: str) -> None:
    assert len(re.findall(r"LD(?:G\.E|\.E)[.\w]*\.128", sass)) >= 4
    # A store for each row of a strip, or for each row of a loop's turn and a single row; no store is under a word.
    rows = TURN[dtype] + 1 if name == "aligned5" else 16 // SIZES[dtype]
    assert len(re.findall(r"\bST(?:G\.E|\.E)", sass)) == rows
    assert not re.findall(r"\bST(?:G\.E|\.E)(?![.\w]*\.128)", sass)
    assert not re.search(r"\b(LDL|STL)\b", sass)
    assert registers(usage) <= 128, usage


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["aligned3", "aligned5"])
def test_stencils_of_aligned_rows_move_words_and_spill_nothing(
    tools, tmp_path: pathlib.Path, dtype: str, name: str
) -> None:
    check_aligned(*linked_kernel(tools, tmp_path, WITH_A_TENSOR, f"sluice_filter2d_{name}_{dtype}"), dtype, name)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_stencils_of_aligned_rows_keep_taps_in_uniform_registers(tools, tmp_path: pathlib.Path, dtype: str) -> None:
    sass, usage = linked_kernel(tools, tmp_path, "scale(1.5)|relu", f"sluice_filter2d_aligned5_{dtype}")
    check_aligned(sass, usage, dtype, "aligned5")  # without a tensor too
    products = re.findall(r"\bFFMA[^;]*", sass)
    # Products of a turn's rows, of a single row, and of the 1 to 4 tap rows used before the first output row.
    assert len(products) == (25 * (TURN[dtype] + 1) + 5 * 10) * 16 // SIZES[dtype]
    assert sum("UR" in product for product in products) > len(products) / 2


# Registers that the launch bounds leave.
LONG_FILTERS = {"long_filter": 96, "long_filter_many_steps": 128, "long_filter_channels": 96}


@pytest.mark.parametrize(
    ("dtype", "chain", "names"),
    [
        ("float16", WITHOUT_TENSORS, ["long_filter", "long_filter_channels"]),  # plans give the last no tensors
        ("float16", CHAIN, ["long_filter"]),
        ("bfloat16", CHAIN, ["long_filter_many_steps"]),
    ],
)
def test_long_filters_multiply_on_tensor_cores_and_spill_nothing(
    tools, tmp_path: pathlib.Path, dtype: str, chain: str, names: list[str]
) -> None:
    kernels = {f"sluice_conv1d_{name}_{dtype}": name for name in names}
    for kernel, (sass, usage) in linked_kernels(tools, tmp_path, chain, list(kernels)).items():
        name = kernels[kernel]
        assert f"HMMA.16816.F32{'.BF16' if dtype == 'bfloat16' else ''}" in sass
        assert re.search(r"LDSM[.\w]*\.M88\.4", sass)  # four registers of the input at once
        assert re.search(r"LDGSTS[.\w]*BYPASS[.\w]*\.128", sass)
        if name == "long_filter_channels" or chain == CHAIN:
            assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", sass)
        else:  # pairs of a line of 128 bytes, from the sums where they are
            assert "SHFL" not in sass
            assert re.search(r"ST(G\.E|\.E) ", sass)
        assert not re.search(r"\b(LDL|STL)\b", sass)
        assert registers(usage) <= LONG_FILTERS[name], usage


@pytest.mark.parametrize(  # registers of three blocks, and of two
    ("columns", "most", "dtype", "chain"), [(16, 80, "float16", CHAIN), (32, 128, "bfloat16", WITHOUT_TENSORS)]
)
def test_few_outputs_load_words_straight_into_products(
    tools, tmp_path: pathlib.Path, columns: int, most: int, dtype: str, chain: str
) -> None:
    kernels = [f"sluice_conv1d_few_outputs_{layout}_{columns}_{dtype}" for layout in ("channels", "positions")]
    for sass, usage in linked_kernels(tools, tmp_path, chain, kernels).values():
        # One set for words aligned to 16 bytes and one for unaligned words.
        assert sass.count(f"HMMA.16816.F32{'.BF16' if dtype == 'bfloat16' else ' '}") == 2 * columns
        assert len(re.findall(r"LDG[.\w]*\.128", sass)) >= 8 + 2 * 8
        assert registers(usage) <= most, usage


@pytest.mark.parametrize(  # registers of three resident blocks, and of two
    ("kernel", "most", "chain"), [("fourier", 80, WITH_A_TENSOR), ("fourier_partitioned", 128, WITHOUT_TENSORS)]
)
def test_fourier_transforms_exchange_whole_points(
    tools, tmp_path: pathlib.Path, kernel: str, most: int, chain: str
) -> None:
    sass, usage = linked_kernel(tools, tmp_path, chain, f"sluice_conv1d_{kernel}_float32")
    # Four exchanges of 16 points a thread, and what is summed directly: 8 bytes each, no other size but its maxima.
    assert len(re.findall(r"\bLDS\.64", sass)) == len(re.findall(r"\bSTS\.64", sass)) == 5 * 16
    assert len(re.findall(r"LDG[.\w]*\.128", sass)) == 4 * 3 + 8  # roots, and a spectrum
    assert registers(usage) <= most, usage
    assert not re.search(r"\b(LDL|STL)\b", sass)


# The tiles are one template: here the two counts of blocks, of channels and both dtypes.
@pytest.mark.parametrize(
    ("tile", "dtype", "chains"),
    [("1x128", "float16", (WITHOUT_TENSORS,)), ("2x64", "bfloat16", (WITHOUT_TENSORS, CHAIN))],
)
def test_interleaved_results_leave_the_tensor_cores_as_words(
    tools, tmp_path: pathlib.Path, tile: str, dtype: str, chains: tuple[str, ...]
) -> None:
    kernel = f"sluice_conv1d_interleaved_{dtype}_{tile}"
    matrices = []
    for chain in chains:
        sass, usage = linked_kernel(tools, tmp_path, chain, kernel)
        blocks, channels = tile.split("x")
        products = re.findall(rf"HGMMA\.64x{channels}x16\.F32{'.BF16' if dtype == 'bfloat16' else ''} ", sass)
        # Loops over 16, 32 and 64 input channels of a tap; ptxas may unroll the first tap.
        assert len(products) in (int(blocks) * 7, int(blocks) * 14)
        assert re.search(r"ST(G\.E|\.E)[.\w]*\.128", sass)
        matrices.append(len(re.findall(r"STSM[.\w]*\.M88\.4", sass)))
        assert registers(usage) <= 128, usage
    assert matrices[0] > 2
    # The input on its way to rows of channels; rounded sums too, but where they meet a tensor: at the result's ends,
    # and of each 32 rows as spans of a channel and as vectors of channels.
    assert len(chains) == 1 or matrices[0] == matrices[1] + 2 + int(channels) // 32 * (2 + 2)
