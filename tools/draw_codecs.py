"""Draws docs/images/codecs.png: what a slot keeps between chunks, inputs of a convolution or sums of a transposed one.

    python tools/draw_codecs.py

Both convolutions have four taps and a stride of 2, so both keep two positions of a channel.
"""

from __future__ import annotations

import pathlib
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Polygon, Rectangle
from PIL import Image

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images" / "codecs.png"

INK, MUTED, PAPER = "#1f2933", "#5b6770", "#ffffff"
KEPT, INPUT, RESULT, WINDOW = "#8fb8de", "#f3dcb8", "#bfe0c6", "#eef1f4"
SIDE = 4.6  # a cell's width and height
TAPS, STRIDE, CHUNK = 4, 2, 4  # inputs of a chunk; a transposed convolution's chunk has as many results
KEEPS = TAPS - STRIDE
FIRST, SECOND = 14.0, 58.0  # where the chunks begin


def write(ax: Axes, x: float, y: float, text: str, size: float = 8.7, **options: Any) -> None:
    ax.text(x, y, text, fontsize=size, **{"color": INK, "va": "center", **options})


def cells(ax: Axes, x: float, y: float, labels: list[str], color: str, **options: Any) -> None:
    """A cell for each label, from x on."""
    for place, label in enumerate(labels):
        left = x + place * SIDE
        ax.add_patch(Rectangle((left, y), SIDE, SIDE, facecolor=color, edgecolor=INK, linewidth=0.9, **options))
        write(ax, left + SIDE / 2, y + SIDE / 2, label, 8, ha="center")


def fan(ax: Axes, top: tuple[float, float, float], bottom: tuple[float, float, float]) -> None:
    """What belongs together: from an edge above to an edge below; both are left, right and height."""
    (left, right, y), (low_left, low_right, low) = top, bottom
    corners = [(left, y), (right, y), (low_right, low), (low_left, low)]
    ax.add_patch(Polygon(corners, facecolor=WINDOW, edgecolor=MUTED, linewidth=0.6, alpha=0.8, zorder=0))


def carry(ax: Axes, start: tuple[float, float], end: tuple[float, float], bend: float, text: str) -> None:
    """An arrow from what is kept to where the next chunk finds it."""
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": INK, "linewidth": 1.2}
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **style))
    write(ax, (start[0] + end[0]) / 2, max(start[1], end[1]) + 7.4, text, 8.3, ha="center", color=MUTED)


def names(letter: str, first: int, count: int) -> list[str]:
    return [f"{letter}{place}" for place in range(first, first + count)]


def draw_convolution(ax: Axes, y: float) -> None:
    """Inputs above, results below; the state is before the chunk."""
    write(ax, 2, y + 17.5, "causal_conv1d, four taps, stride 2", 10.5, weight="bold")
    write(ax, 98, y + 17.5, "state: the last d (K - 1) + 1 - s inputs, before the chunk", 9, ha="right")
    write(ax, 2, y + SIDE / 2, "inputs")
    write(ax, 2, y - 9.4 + SIDE / 2, "results")
    for number, x in enumerate((FIRST, SECOND)):
        begin = number * CHUNK
        held = names("x", begin - KEEPS, KEEPS) if number else ["0"] * KEEPS
        cells(ax, x, y, held, KEPT)
        cells(ax, x + KEEPS * SIDE, y, names("x", begin, CHUNK), INPUT)
        write(ax, x - 0.8, y + SIDE / 2, "state", 8, ha="right", color=MUTED)
        write(ax, x + KEEPS * SIDE, y + SIDE + 1.4, f"chunk {number}", 8, color=MUTED)
        for place in range(CHUNK // STRIDE):
            left = x + place * STRIDE * SIDE
            middle = left + (TAPS - 1) * SIDE
            fan(ax, (left, left + TAPS * SIDE, y), (middle, middle + SIDE, y - 9.4 + SIDE))
            cells(ax, middle, y - 9.4, names("y", begin // STRIDE + place, 1), RESULT)
    last = FIRST + (KEEPS + CHUNK - KEEPS / 2) * SIDE
    carry(ax, (last, y + SIDE), (SECOND + KEEPS * SIDE / 2, y + SIDE), -0.35, "the slot keeps the last inputs")


def draw_transposed(ax: Axes, y: float) -> None:
    """Inputs above, sums below; the overlap is after the chunk."""
    write(ax, 2, y + 22.5, "causal_conv_transpose1d, four taps, stride 2", 10.5, weight="bold")
    write(ax, 98, y + 22.5, "overlap: the d (K - 1) + 1 - s sums after the chunk", 9, ha="right")
    write(ax, 2, y + 13 + SIDE / 2, "inputs")
    write(ax, 2, y + SIDE / 2, "sums")
    write(ax, 2, y - 7.6 + SIDE / 2, "added")
    write(ax, 2, y - 14 + SIDE / 2, "results")
    for number, x in enumerate((FIRST, SECOND)):
        begin = number * CHUNK
        inputs = CHUNK // STRIDE
        for place in range(inputs):
            left = x + place * STRIDE * SIDE
            middle = left + (STRIDE - 1) * SIDE / 2
            fan(ax, (middle, middle + SIDE, y + 13), (left, left + TAPS * SIDE, y + SIDE))
            cells(ax, middle, y + 13, names("x", number * inputs + place, 1), INPUT)
        cells(ax, x, y, names("s", begin, CHUNK), PAPER)
        cells(ax, x + CHUNK * SIDE, y, names("s", begin + CHUNK, KEEPS), KEPT)
        write(ax, x + (CHUNK + KEEPS) * SIDE + 0.8, y + SIDE / 2, "overlap", 8, color=MUTED)
        held = names("s", begin, KEEPS) if number else ["0"] * KEEPS
        cells(ax, x, y - 7.6, held, KEPT)
        cells(ax, x, y - 14, names("y", begin, CHUNK), RESULT)
        write(ax, x + KEEPS * SIDE + 0.8, y - 7.6 + SIDE / 2, "the earlier overlap", 8, color=MUTED)
        write(ax, x + CHUNK * SIDE + 0.8, y - 14 + SIDE / 2, "post(sum + bias)", 8, color=MUTED)
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": INK, "linewidth": 1.2}
    start, end = (FIRST + (CHUNK + KEEPS / 2) * SIDE, y), (SECOND - 0.3, y - 7.6 + SIDE / 2)
    ax.add_patch(FancyArrowPatch(start, end, connectionstyle="angle3,angleA=-80,angleB=3", **style))
    write(ax, 2, y - 18.6, "Overlaps are float32 sums without the bias, so a bias is added once.", 8.3, color=MUTED)


def main() -> None:
    figure, ax = plt.subplots(figsize=(10, 6.2))
    figure.subplots_adjust(0, 0, 1, 1)
    ax.set_xlim(0, 100)
    ax.set_ylim(2, 86)
    ax.axis("off")
    draw_convolution(ax, 65)
    draw_transposed(ax, 23)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT, dpi=120, facecolor=PAPER)
    with Image.open(OUTPUT) as picture:  # a palette of a few flat colours makes it a third of the size
        small = picture.convert("RGB").quantize(64)
    small.save(OUTPUT, optimize=True)
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
