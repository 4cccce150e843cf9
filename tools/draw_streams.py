"""Draws docs/images/streams.png: two orders as their events allow them, for copies and compute of known lengths.

The times follow from the edges of python/sluice/stream/device/pipeline.py alone; `python -m sluice trace` draws
measured ones.
"""

import pathlib

import matplotlib.pyplot as plt

OUTPUT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "images" / "streams.png"
CHUNKS, DEPTH = 9, 3
COPY, COMPUTE = 1.0, 0.8
COLORS = {"copy in": "#4c78a8", "compute": "#f58518", "copy out": "#54a24b"}


def schedule(order: str) -> dict[str, list[tuple[float, float]]]:
    """(begin, end) of each chunk in each row: what is issued first runs first, as soon as its events are there."""
    done: dict[str, list[float]] = {row: [0.0] * CHUNKS for row in COLORS}
    spans: dict[str, list[tuple[float, float]]] = {row: [(0.0, 0.0)] * CHUNKS for row in COLORS}
    free = dict.fromkeys(COLORS, 0.0)

    def run(row: str, chunk: int, length: float, *waits: float) -> None:
        begin = max(free[row], *waits)
        free[row] = done[row][chunk] = begin + length
        spans[row][chunk] = (begin, begin + length)

    for chunk in range(CHUNKS):
        slot_free = done["compute"][chunk - DEPTH] if chunk >= DEPTH else 0.0
        before = 0.0
        if order == "sequential" and chunk:
            before = done["copy out"][chunk - 1]
        run("copy in", chunk, COPY, slot_free, before)
        stored = done["copy out"][chunk - DEPTH] if chunk >= DEPTH else 0.0
        run("compute", chunk, COMPUTE, done["copy in"][chunk], stored)
        run("copy out", chunk, COPY, done["compute"][chunk])
    return spans


def main() -> None:
    runs = [("depth first, three slots", "depth_first"), ("sequential", "sequential")]
    figure, panels = plt.subplots(len(runs), 1, figsize=(11, 4.2), sharex=True, layout="constrained")
    for axes, (label, order) in zip(panels, runs, strict=True):
        spans = schedule(order)
        for y, (row, color) in enumerate(COLORS.items()):
            for chunk, (begin, end) in enumerate(spans[row]):
                axes.broken_barh([(begin, end - begin)], (y - 0.4, 0.8), facecolors=color, edgecolors="white")
                slot = f"{chunk}" if row == "compute" else f"{chunk}\nslot {chunk % DEPTH}"
                axes.text((begin + end) / 2, y, slot, ha="center", va="center", color="white", fontsize=7)
        length = max(end for row in spans.values() for _, end in row)
        axes.set_title(f"{label}: {length:.1f} copies long", loc="left", fontsize=9)
        axes.set_yticks(range(3), COLORS, fontsize=9)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("time, in copies of a chunk")
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(OUTPUT, dpi=110)


if __name__ == "__main__":
    main()
