"""kernels/linking/kernel_sources.py: what it reads of kernels.def, and the sources that it writes."""

from __future__ import annotations

import pathlib
import runpy
from typing import Any

import pytest

from common import ROOT

pytestmark = pytest.mark.no_gpu
TABLE = """// A comment, with SLUICE_KERNEL(not, a, row)
SLUICE_KERNEL(plain, direct, direct, up_to_float32, native, (word, 1), (word, 2),
              (kThreads, kBlocks<Element>), (), Arguments<Element, 2>, plain<Chains<Element>, 3>)
SLUICE_KERNEL(bytes, direct, direct, float32, native, (0, 0), (word, 2), (kThreads), (a, 1), Arguments<Element, 2>,
              bytes<Byte>)
SLUICE_KERNEL(ring, ring, rings, half, native, (0, 0), (1, 1), (kThreads + Pipe::kProducers), (), A, ring<Chain, Pipe>)
SLUICE_KERNEL(tile, tile, tile, tiles, sm90a, (0, 0), (1, 1), (512, 1), (), A, tile<Element, kBlocks, kChannels>)

SLUICE_LAUNCHER(direct, Op, Method, ptx_alone, 2)
SLUICE_LAUNCHER(tile, Op, Method, sm90a, 3)
"""
TILES = [
    "launch_tile_" + "_".join(f"{dtype}_{tile}" for dtype in ("float32", "float16", "bfloat16"))
    for tile in ("1x64", "4x32")
]


@pytest.fixture
def written(tmp_path: pathlib.Path) -> pathlib.Path:
    return run(tmp_path, TABLE)


def run(folder: pathlib.Path, table: str) -> pathlib.Path:
    kernels, out = folder / "kernels/operators/op/method", folder / "out"
    kernels.mkdir(parents=True, exist_ok=True)
    (kernels / "kernels.def").write_text(table)
    (kernels / "tiles.def").write_text("// Tiles.\nSLUICE_DENSE_TILE(1, 64)\nSLUICE_DENSE_TILE(4, 32)\n")
    script()["main"](folder / "kernels/operators", out)
    return out


def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "kernels" / "linking" / "kernel_sources.py"))


def test_every_launcher_and_module_has_a_source(written: pathlib.Path) -> None:
    calls = (written / "kernels.cmake").read_text().splitlines()
    folder = written / "op" / "method"
    names = ["op_direct_float32", "op_direct_float16", "op_direct_bfloat16", "op_rings_float16", "op_rings_bfloat16"]
    tiles = [f"op_tile_{dtype}_{tile}" for tile in ("1x64", "4x32") for dtype in ("float32", "float16", "bfloat16")]
    assert calls == [
        *(f"sluice_launcher({folder}/{name}.cu op/method/{name} ptx_alone)"
          for name in ("launch_direct_float16_bfloat16", "launch_direct_float32")),
        *(f"sluice_launcher({folder}/{name}.cu op/method/{name} sm90a)" for name in reversed(TILES)),
        *(f"sluice_module({name} {folder}/{name}.cu native)" for name in names),
        *(f"sluice_module({name} {folder}/{name}.cu sm90a)" for name in tiles),
    ]  # fmt: skip
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.cu" for name in (*names, *tiles, *TILES)),
        *("launch_direct_float16_bfloat16.cu", "launch_direct_float32.cu"),
    }  # fmt: skip


def test_a_module_has_the_kernels_of_its_dtype(written: pathlib.Path) -> None:
    assert (
        (written / "op/method/op_direct_float32.cu").read_text()
        == """\
// Linked kernels of kernels/operators/op/method/kernels.def, whose chains are open.
#include "kernels/operators/op/method/direct.cuh"

namespace sluice {

using Element = float;

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    sluice_op_plain_float32(const __grid_constant__ Arguments<Element, 2> a) {
  plain<Chains<Element>, 3>(a);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    sluice_op_bytes_float32(const __grid_constant__ Arguments<Element, 2> a) {
  bytes<Byte>(a);
}

}  // namespace sluice
"""
    )
    assert "bytes" not in (written / "op/method/op_direct_float16.cu").read_text()


def test_a_kernel_with_a_pipe_has_an_entry_for_each_ring(written: pathlib.Path) -> None:
    text = (written / "op/method/op_rings_bfloat16.cu").read_text()
    assert '#include "kernels/shared/pipeline/pipes.cuh"' in text
    assert "sluice_op_ring_bfloat16_##schedule(const __grid_constant__ A a) { \\" in text
    assert '#include "kernels/shared/pipeline/rings.def"' in text


def test_a_tile_is_two_numbers(written: pathlib.Path) -> None:
    text = (written / "op/method/op_tile_float16_4x32.cu").read_text()
    assert "inline constexpr int kBlocks = 4, kChannels = 32;" in text
    assert "sluice_op_tile_float16_4x32(" in text


def test_a_launcher_has_the_kernels_of_its_dtypes(written: pathlib.Path) -> None:
    arguments = "(const OpParams&, const OpPlan&, const void*, cudaStream_t);"
    assert (
        (written / "op/method/launch_direct_float32.cu").read_text()
        == f"""\
#include "kernels/operators/op/method/direct.cuh"

namespace sluice {{

template cudaError_t enqueue<MethodKernel::plain, float>{arguments}
template cudaError_t enqueue<MethodKernel::bytes, float>{arguments}

}}  // namespace sluice
"""
    )
    text = (written / "op/method/launch_direct_float16_bfloat16.cu").read_text()
    assert f"template cudaError_t enqueue<MethodKernel::plain, __half>{arguments}" in text
    assert f"template cudaError_t enqueue<MethodKernel::plain, __nv_bfloat16>{arguments}" in text
    assert "bytes" not in text
    tiles = (written / "op/method" / f"{TILES[1]}.cu").read_text()
    assert f"template cudaError_t enqueue<MethodKernel::tile, __nv_bfloat16, 4, 32>{arguments}" in tiles


def test_unchanged_sources_are_not_written_again(tmp_path: pathlib.Path) -> None:
    out = run(tmp_path, TABLE)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.cu")}
    run(tmp_path, TABLE.replace("ring<Chain, Pipe>", "ring<Other, Pipe>"))
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {"op_rings_float16.cu", "op_rings_bfloat16.cu"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SLUICE_KERNEL(ring", "SLUICE_KERNEL(plain_float16", "the name of kernel op_plain_float16_.* begins with"),
        ("up_to_float32, native", "some, native", "plain: unknown dtypes some"),
        ("ptx_alone", "ptx", "direct: unknown code ptx, or a module without kernels"),
        ("LAUNCHER(direct", "LAUNCHER(absent", "absent: unknown code ptx_alone, or a module without kernels"),
    ],
)
def test_rows_that_would_go_wrong_are_refused(tmp_path: pathlib.Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, TABLE.replace(old, new))
