"""Draws docs/images/architecture.png: the three layers, and below them a ring in operation."""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images" / "architecture.png"

INK, MUTED, PAPER = "#1f2933", "#5b6770", "#ffffff"
PYTHON, OPS, KERNELS, PART = "#e3edf7", "#e2f0e6", "#f8ecd9", "#fffaf0"
COPY, WAIT, COMPUTE = "#8fb8de", "#ffffff", "#e0a458"
RIGHT = 98.0

PARTS = {
    "operators/": """plan.cpp: method,
kernel, and why
policy.h: numbers
a folder a method""",
    "pipeline/": """rings.def: schedules
pipe: who waits
copy: moves bytes
plan: a ring's shape""",
    "stages/": """stages.def: the list
functors.h: each
interpreter.cuh: run
epilogue.cuh: store""",
    "linking/": """linker: which form
source: as C++
compile: a kernel
disk_cache: for later""",
    "transfer/": """engine: a device
lane: a direction
ring: pinned pieces
driver: GPU or host""",
}
C = """ops/, ops/cpu, host side
of kernels/: schemas, checks,
plans, CPU kernels"""
C_CUDA = """ops/, ops/cuda, device code:
CUDA kernels, cudart inside;
loads without a GPU, too"""
RULE = """Dependencies point downwards:
kernels/ is compiled with no torch on
its include path, and Python reaches
C++ through torch.ops alone."""


def write(ax: Axes, x: float, y: float, text: str, size: float = 8.7, **options: Any) -> None:
    ax.text(x, y, text, fontsize=size, **{"color": INK, "va": "center", **options})


def code(ax: Axes, x: float, y: float, text: str, size: float, **options: Any) -> None:
    write(ax, x, y, text, size, family="DejaVu Sans Mono", **options)


def paragraph(ax: Axes, x: float, top: float, text: str, size: float, **options: Any) -> None:
    write(ax, x, top, text, size, **{"va": "top", "linespacing": 1.6, **options})


def box(ax: Axes, x: float, y: float, width: float, height: float, color: str) -> None:
    shape = "round,pad=0,rounding_size=0.9"
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=shape, facecolor=color, edgecolor=INK, linewidth=0.9))


def layer(ax: Axes, y: float, height: float, color: str, folder: str, knows: str) -> None:
    box(ax, 2, y, 68, height, color)
    code(ax, 4, y + height - 2.6, folder, 11, weight="bold")
    write(ax, 68.5, y + height - 2.6, knows, 8.5, color=MUTED, ha="right", style="italic")


def crossing(ax: Axes, y: float, label: str) -> None:
    ax.annotate("", (20, y - 4.2), (20, y), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 1.3})
    code(ax, 21.5, y - 2.1, label, 8.5)


def draw_layers(ax: Axes) -> None:
    box(ax, 2, 91.5, 68, 6, PAPER)
    code(ax, 4, 94.5, "sluice.conv1d(x, w, b, post=stages.silu())", 9.5)
    write(ax, 68.5, 94.5, "your model", 8.5, color=MUTED, ha="right", style="italic")
    crossing(ax, 91.5, "a call")

    layer(ax, 75.2, 12, PYTHON, "python/sluice/<op>.py", "knows torch from Python")
    write(ax, 4, 80.0, "docstring, autocast, forward-only check, fake kernels, errors as Python types")
    modules = "chain.py: Chain -> text", "reference/: what each op means", "stream/: chunks, slots, who waits"
    write(ax, 4, 77.2, "    ".join(modules))
    crossing(ax, 75.2, 'torch.ops.sluice.conv1d(..., post="silu()")')

    layer(ax, 58.9, 12, OPS, "ops/<op>.cpp", "knows torch through its stable C ABI")
    write(ax, 4, 63.7, "schema, checks, plan, link, allocate, run; in two libraries, for CPU and for CUDA")
    write(ax, 4, 60.9, "convolution, stencil, elementwise: what ops share        common/: chain, checks, aten, device")
    crossing(ax, 58.9, "launch_conv1d(params, plan, linked, workspace, stream) -> cudaError_t")

    layer(ax, 33.4, 21.2, KERNELS, "kernels/", "knows CUDA, never torch")
    for index, (title, text) in enumerate(PARTS.items()):
        x = 3.5 + index * 13.1
        box(ax, x, 34.9, 12.6, 14.4, PART)
        code(ax, x + 0.7, 47.2, title, 9.5, weight="bold")
        paragraph(ax, x + 0.7, 45.3, text, 7.4)


def draw_binaries(ax: Axes) -> None:
    write(ax, 74, 95.6, "One wheel", 10.5, weight="bold")
    write(ax, 74, 92.8, "py3-none-linux_x86_64, torch >= 2.11", 8.2)
    for y, color, name, text in ((72.6, OPS, "_C.so", C), (55.4, KERNELS, "_C_cuda.so", C_CUDA)):
        box(ax, 74, y, RIGHT - 74, 14.6, color)
        code(ax, 75.4, y + 12.0, name, 11, weight="bold")
        paragraph(ax, 75.4, y + 9.6, text, 8.5)
    paragraph(ax, 74, 51.6, RULE, 8.5, color=MUTED)


def span(ax: Axes, start: float, width: float, y: float, color: str, label: str) -> None:
    ax.add_patch(Rectangle((start, y), width, 3.4, facecolor=color, edgecolor=INK, linewidth=0.8))
    write(ax, start + width / 2, y + 1.65, label, 8, ha="center")


def draw_ring(ax: Axes) -> None:
    """Depth 3: a copy fills each stage, it waits its turn, a computation reads it, and the next copy fills it."""
    write(ax, 2, 28.4, "A ring at work", 10.5, weight="bold")
    write(ax, 16.8, 28.4, "schedule multi_stage, depth 3: one block, tiles 0, 1, 2, ... in three stages of a ring", 9)
    copy, compute, issue, first = 17.6, 7.7, 1.2, 13.0
    rows = [21.8, 16.6, 11.4]
    free = [first + stage * issue for stage in range(3)]
    for stage, y in enumerate(rows):
        code(ax, 2, y + 1.65, f"stage {stage}", 9)
    clock = first + copy
    for tile in range(9):
        stage = tile % 3
        start, y = free[stage], rows[stage]
        there = start + copy
        begin = max(clock, there)
        clock = free[stage] = begin + compute
        span(ax, start, min(copy, RIGHT - start), y, COPY, f"copy {tile}")
        if begin - there > 0.5 and begin < RIGHT:
            span(ax, there, begin - there, y, WAIT, "")
        if clock <= RIGHT:
            span(ax, begin, compute, y, COMPUTE, f"compute {tile}")
    arrow = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 1.0}
    ax.annotate("", (RIGHT, 8.8), (first, 8.8), arrowprops=arrow)
    write(ax, RIGHT, 6.8, "time", 8.5, color=MUTED, ha="right")
    legend = (
        (13, COPY, "cp.async into the stage"),
        (34, WAIT, "there, not yet used"),
        (52, COMPUTE, "sums, chain, store"),
    )
    for x, color, label in legend:
        ax.add_patch(Rectangle((x, 5.7), 2.2, 2.0, facecolor=color, edgecolor=INK, linewidth=0.8))
        write(ax, x + 3, 6.7, label, 8.5)


def main() -> None:
    figure, ax = plt.subplots(figsize=(10, 8.2))
    figure.subplots_adjust(0, 0, 1, 1)
    ax.set_xlim(0, 100)
    ax.set_ylim(4, 99)
    ax.axis("off")
    draw_layers(ax)
    draw_binaries(ax)
    draw_ring(ax)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT, dpi=120, facecolor=PAPER)
    with Image.open(OUTPUT) as picture:  # a palette of a few flat colours makes it a third of the size
        small = picture.convert("RGB").quantize(128)
    small.save(OUTPUT, optimize=True)
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
