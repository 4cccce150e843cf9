"""Writes the CUDA sources that kernels.def files ask for: one or more of each launcher, one of each module and dtype.

    kernel_sources.py OPERATORS OUT   of the folders below OPERATORS, to OUT/<folder>/*.cu

kernel_table.h explains the rows. CMake runs this, and includes OUT/kernels.cmake, which calls

    sluice_launcher(SOURCE SEED CODE)
    sluice_module(NAME SOURCE CODE)

for each source. A source that has not changed is not written again, so it is not compiled again.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import sys
from typing import NamedTuple

ELEMENTS = {"float32": "float", "float16": "__half", "bfloat16": "__nv_bfloat16", "float64": "double"}
DTYPES = {
    "all": ("float32", "float16", "bfloat16", "float64"),
    "up_to_float32": ("float32", "float16", "bfloat16"),
    "half": ("float16", "bfloat16"),
    "float32": ("float32",),
}
KERNEL_CODE = ("native", "sm90a")
LAUNCHER_CODE = (*KERNEL_CODE, "ptx_alone")


class Instance(NamedTuple):
    """What a template is instantiated for: a dtype, or a dtype and a tile."""

    name: str  # float16, or float16_2x128
    element: str
    tile: tuple[str, str] | None = None

    def arguments(self) -> str:
        return ", ".join((self.element, *(self.tile or ())))


class Kernel(NamedTuple):
    name: str
    file: str
    module: str
    dtypes: str
    code: str
    pre: str
    post: str
    bounds: str
    traits: str
    arguments: str
    call: str


class Launcher(NamedTuple):
    module: str
    params: str
    kernels: str
    code: str
    count: str


class Table(NamedTuple):
    folder: str  # below kernels/operators/
    kernels: list[Kernel]
    launchers: list[Launcher]
    tiles: list[tuple[str, str]]

    @property
    def op(self) -> str:
        return self.folder.split("/")[0]

    def members(self, module: str) -> list[Kernel]:
        return [kernel for kernel in self.kernels if kernel.module == module]

    def instances_of(self, kernels: list[Kernel]) -> list[Instance]:
        return list(dict.fromkeys(instance for kernel in kernels for instance in self.instances(kernel.dtypes)))

    def instances(self, dtypes: str) -> list[Instance]:
        if dtypes == "tiles":
            return [
                Instance(f"{dtype}_{blocks}x{channels}", ELEMENTS[dtype], (blocks, channels))
                for blocks, channels in self.tiles
                for dtype in DTYPES["up_to_float32"]
            ]
        return [Instance(dtype, ELEMENTS[dtype]) for dtype in DTYPES[dtypes]]


def columns(text: str) -> list[str]:
    """A row's columns: separated by commas that are in no brackets."""
    depth, found = 0, [""]
    for character in text:
        depth += {"(": 1, "<": 1, ")": -1, ">": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [" ".join(column.split()) for column in found]


def rows(text: str, macro: str) -> list[list[str]]:
    """The arguments of each use of the macro at the beginning of a line."""
    found = []
    for use in re.finditer(rf"^{macro}\(", text, re.MULTILINE):
        end, depth = use.end(), 1
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(columns(text[use.end() : end - 1]))
    return found


def read_table(operators: pathlib.Path, path: pathlib.Path) -> Table:
    text = re.sub(r"//.*|/\*.*?\*/", "", path.read_text())
    tiles = path.with_name("tiles.def")
    table = Table(
        path.parent.relative_to(operators).as_posix(),
        [Kernel(*row) for row in rows(text, "SLUICE_KERNEL")],
        [Launcher(*row) for row in rows(text, "SLUICE_LAUNCHER")],
        [(row[0], row[1]) for row in rows(tiles.read_text(), "SLUICE_DENSE_TILE")] if tiles.exists() else [],
    )
    for row in table.kernels:
        if row.dtypes not in (*DTYPES, "tiles") or row.code not in KERNEL_CODE:
            raise ValueError(f"{path}: {row.name}: unknown dtypes {row.dtypes} or code {row.code}")
    for launcher in table.launchers:
        if launcher.code not in LAUNCHER_CODE or not table.members(launcher.module):
            raise ValueError(f"{path}: {launcher.module}: unknown code {launcher.code}, or a module without kernels")
    return table


def _has_pipe(kernel: Kernel) -> bool:
    return re.search(r"\bPipe\b", kernel.call) is not None


def entry_source(kernel: Kernel, op: str, instance: Instance) -> str:
    """A linked kernel, or one for each ring."""
    name = f"sluice_{op}_{kernel.name}_{instance.name}"
    ring = _has_pipe(kernel)
    text = (
        f'extern "C" __global__ void __launch_bounds__{kernel.bounds}\n'
        f"    {name}{'_##schedule' if ring else ''}(const __grid_constant__ {kernel.arguments} a) {{\n"
        f"  {kernel.call}(a);\n"
        "}"
    )
    if not ring:
        return text
    lines = "".join(f" \\\n  {line}" for line in text.split("\n"))
    return f'#define SLUICE_RING(schedule, Pipe, ...){lines}\n#include "kernels/shared/pipeline/rings.def"'


def kernel_files(table: Table, kernels: list[Kernel]) -> list[str]:
    return [f"kernels/operators/{table.folder}/{file}.cuh" for file in dict.fromkeys(kernel.file for kernel in kernels)]


def module_source(table: Table, kernels: list[Kernel], instance: Instance) -> str:
    includes = kernel_files(table, kernels)
    if any(_has_pipe(kernel) for kernel in kernels):
        includes.append("kernels/shared/pipeline/pipes.cuh")
    lines = [f"// Linked kernels of kernels/operators/{table.folder}/kernels.def, whose chains are open."]
    lines += [f'#include "{include}"' for include in includes]
    lines += ["", "namespace sluice {", "", f"using Element = {instance.element};"]
    if instance.tile is not None:
        lines.append(f"inline constexpr int kBlocks = {instance.tile[0]}, kChannels = {instance.tile[1]};")
    lines += [f"\n{entry_source(kernel, table.op, instance)}" for kernel in kernels]
    return "\n".join(lines) + "\n\n}  // namespace sluice\n"


def launcher_source(table: Table, launcher: Launcher, instances: list[Instance]) -> str:
    members = table.members(launcher.module)
    arguments = f"const {launcher.params}Params&, const {launcher.params}Plan&, const void*, cudaStream_t"
    lines = [f'#include "{file}"' for file in kernel_files(table, members)] + ["", "namespace sluice {", ""]
    lines += [
        f"template cudaError_t enqueue<{launcher.kernels}Kernel::{kernel.name}, {instance.arguments()}>({arguments});"
        for instance in instances
        for kernel in members
        if instance in table.instances(kernel.dtypes)
    ]
    return "\n".join(lines) + "\n\n}  // namespace sluice\n"


def launchers(table: Table) -> dict[str, tuple[str, str]]:
    """Name of a source -> its code class and text. The first source has the remainder."""
    found = {}
    for launcher in table.launchers:
        instances, count = table.instances_of(table.members(launcher.module)), int(launcher.count)
        for last in range(len(instances), 0, -count):
            some = instances[max(last - count, 0) : last]
            name = "_".join((f"launch_{launcher.module}", *(instance.name for instance in some)))
            found[name] = (launcher.code, launcher_source(table, launcher, some))
    return found


def modules(table: Table) -> dict[str, tuple[str, str]]:
    """Name of a module -> its code class and source."""
    found: dict[str, tuple[str, str]] = {}
    for module in dict.fromkeys(kernel.module for kernel in table.kernels):
        members = table.members(module)
        for instance in table.instances_of(members):
            own = [kernel for kernel in members if instance in table.instances(kernel.dtypes)]
            text = module_source(table, own, instance)
            found[f"{table.op}_{module}_{instance.name}"] = (own[0].code, text)
    return found


def check_names(tables: list[Table]) -> None:
    """No kernel's entry begins with another's: the linker keeps each whose name begins with the one asked for."""
    names = sorted(
        f"{table.op}_{kernel.name}_{instance.name}"
        for table in tables
        for kernel in table.kernels
        for instance in table.instances(kernel.dtypes)
    )
    for name, following in itertools.pairwise(names):
        if following.startswith(name):
            raise ValueError(f"kernels.def: the name of kernel {following} begins with that of {name}")


def write(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(operators: pathlib.Path, out: pathlib.Path) -> None:
    tables = [read_table(operators, path) for path in sorted(operators.rglob("kernels.def"))]
    check_names(tables)
    calls = []
    for table in tables:
        for name, (code, text) in launchers(table).items():
            source = out / table.folder / f"{name}.cu"
            write(source, text)
            calls.append(f"sluice_launcher({source} {table.folder}/{name} {code})")
        for name, (code, text) in modules(table).items():
            source = out / table.folder / f"{name}.cu"
            write(source, text)
            calls.append(f"sluice_module({name} {source} {code})")
    write(out / "kernels.cmake", "\n".join(calls) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
