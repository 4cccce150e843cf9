"""Draws what runs at the same time, from a recording that benchmarks/record_streams.py made on a GPU.

    python tools/draw_streams.py [RECORDING] [--output DIR]

    streams.png           sluice's streams in their three orders
    streams_sample.png    the forms of CUDA's sample beside sluice's, from pinned and from pageable memory
    streams_host.png      a host function after device work, and during it
    streams_default.png   eight kernels on the legacy default stream and on eight streams
    streams_cases.png     eight kernels around CUDA's default streams, and from eight host threads

Without a recording in benchmarks/recordings nothing is drawn.
"""

import argparse
import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import result_files

IMAGES = result_files.ROOT / "docs" / "images"
COLORS = {"copy in": "#4c78a8", "compute": "#f58518", "copy out": "#54a24b", "host": "#b279a2"}
Timeline = dict[str, Any]


def timelines(recording: dict[str, Any], what: str) -> dict[str, Timeline]:
    """The timelines of one kind, by label."""
    return {one["label"]: one for one in recording["timelines"] if one["what"] == what}


def milliseconds(one: Timeline) -> str:
    return f"{one['total_ms']:.{2 if one['total_ms'] < 10 else 1}f} ms"


def scale(recording: dict[str, Any], each_way: bool = True) -> str:
    job = f", {recording['mebibytes']} MiB each way" if each_way else ""
    return f"milliseconds ({recording['gpu'].replace('cpu', 'CPU')}{job})"


def panel(axes: Any, rows: Sequence[str], title: str) -> None:
    """Axes with a line for each row, the first row on top."""
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_yticks(range(len(rows)), rows, fontsize=9 if len(rows) < 6 else 7)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)


def box(axes: Any, span: tuple[float, float], place: tuple[float, float], color: str, text: str, **edge: Any) -> None:
    """Draws one item from begin to end; `place` is its height and thickness."""
    (begin, end), (y, height) = span, place
    edge = edge or {"edgecolors": "white"}
    axes.broken_barh([(begin, end - begin)], (y - height / 2, height), facecolors=color, **edge)
    axes.text((begin + end) / 2, y, text, ha="center", va="center", color="white", fontsize=7)


def strips(spans: Sequence[dict[str, Any]]) -> list[int]:
    """The first free strip of the row for each span, so that overlapping spans do not cover each other."""
    ends: list[float] = []
    taken = []
    for span in spans:
        strip = next((i for i, until in enumerate(ends) if until <= span["begin_ms"]), len(ends))
        ends[strip : strip + 1] = [span["end_ms"]]
        taken.append(strip)
    return taken


def draw_timeline(axes: Any, one: Timeline, title: str, longest: float, columns: int) -> None:
    """Draws copies, compute and host work, with chunk numbers in boxes that are large enough."""
    names = [row for row in COLORS if any(span["row"] == row for span in one["rows"])]
    panel(axes, names, f"{title}: {milliseconds(one)}")
    for y, name in enumerate(names):
        own = sorted((span for span in one["rows"] if span["row"] == name), key=lambda span: span["begin_ms"])
        taken = strips(own)
        height = 0.8 / (max(taken) + 1)
        for span, strip in zip(own, taken, strict=True):
            part = (span["end_ms"] - span["begin_ms"]) / (longest * columns)
            text = str(span["item"]) if part > 0.018 and height > 0.25 and name != "host" else ""
            # A white edge would hide a narrow box.
            edge = {} if part > 0.005 else {"edgecolors": COLORS[name], "linewidth": 0.3}
            place = (y - 0.4 + (strip + 0.5) * height, height)
            box(axes, (span["begin_ms"], span["end_ms"]), place, COLORS[name], text, **edge)


def draw_kernels(axes: Any, one: Timeline, title: str) -> None:
    """Draws a line for each kernel, regardless of its stream."""
    panel(axes, [f"kernel {span['item']}" for span in one["rows"]], f"{title}: {milliseconds(one)}")
    for y, span in enumerate(one["rows"]):
        box(axes, (span["begin_ms"], span["end_ms"]), (y, 0.8), COLORS["compute"], "")


def grid(rows: int, columns: int, height: float) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(11, height), sharex="col", squeeze=False, layout="constrained")


def save(figure: Any, path: pathlib.Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_column(axes: Sequence[Any], shown: Sequence[tuple[str, Timeline]], label: str, columns: int = 1) -> None:
    """Draws timelines on one scale, one below the other."""
    longest = max(one["total_ms"] for _, one in shown)
    for axis, (title, one) in zip(axes, shown, strict=True):
        draw_timeline(axis, one, title, longest, columns)
    axes[-1].set_xlabel(label)


def orders_of(recording: dict[str, Any], memory: str) -> list[tuple[str, Timeline]]:
    found = timelines(recording, "lanes")
    orders = ("sequential", "depth_first", "breadth_first")
    return [(order.replace("_", " "), found[f"{order}, {memory}"]) for order in orders if f"{order}, {memory}" in found]


def draw_orders(recording: dict[str, Any], path: pathlib.Path) -> bool:
    """Draws the three orders, from pinned memory if recorded; returns False if nothing was recorded."""
    shown = orders_of(recording, "pinned") or orders_of(recording, "pageable")
    if shown:
        figure, panels = grid(len(shown), 1, 2.1 * len(shown))
        draw_column(panels[:, 0], shown, scale(recording))
        save(figure, path)
    return bool(shown)


def draw_sample(recording: dict[str, Any], path: pathlib.Path) -> bool:
    """Draws a column for each kind of memory: the sample's forms, and sluice's at the bottom."""
    found, columns = timelines(recording, "sample"), []
    for memory in ("pinned", "pageable"):
        own = [one for label, one in found.items() if f", {memory}, " in label]
        titles = [one["label"].replace(f", {memory}", "").replace("_", " ") for one in own]
        ours = [(f"sluice, {name}", one) for name, one in orders_of(recording, memory) if name == "depth first"]
        columns.append([(f"{memory}, {name}", one) for name, one in [*zip(titles, own, strict=True), *ours]])
    if found:
        figure, panels = grid(len(columns[0]), 2, 1.45 * len(columns[0]))
        for axes, shown in zip(panels.T, columns, strict=True):
            draw_column(axes, shown, scale(recording), columns=2)
        save(figure, path)
    return bool(found)


def draw_host(recording: dict[str, Any], path: pathlib.Path) -> bool:
    """Draws a host function after and during the device's work, with the share of it that was hidden."""
    found = timelines(recording, "host")
    shown = [(f"{label}, {100 * one['hidden']:.0f} % of it hidden", one) for label, one in found.items()]
    if shown:
        figure, panels = grid(len(shown), 1, 2.4 * len(shown))
        draw_column(panels[:, 0], shown, scale(recording))
        save(figure, path)
    return bool(shown)


def draw_eight(what: str, recording: dict[str, Any], path: pathlib.Path) -> bool:
    """Draws the ways to launch eight kernels, on one scale."""
    found = timelines(recording, what)
    if found:
        rows = -(-len(found) // 2)
        figure, panels = grid(rows, 2, 2.6 * rows)
        for axes in panels.flat[len(found) :]:
            axes.axis("off")
        for axes, (label, one) in zip(panels.flat, found.items(), strict=False):
            draw_kernels(axes, one, label)
            axes.set_xlim(0, 1.02 * max(one["total_ms"] for one in found.values()))
        for axes in panels.flat[max(len(found) - 2, 0) : len(found)]:
            axes.tick_params(labelbottom=True)
            axes.set_xlabel(scale(recording, each_way=False))
        save(figure, path)
    return bool(found)


PICTURES: dict[str, Callable[[dict[str, Any], pathlib.Path], bool]] = {
    "streams.png": draw_orders,
    "streams_sample.png": draw_sample,
    "streams_host.png": draw_host,
    "streams_default.png": functools.partial(draw_eight, "kernels"),
    "streams_cases.png": functools.partial(draw_eight, "cases"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=pathlib.Path, nargs="?", help="instead of a GPU's in benchmarks/recordings")
    parser.add_argument("--output", type=pathlib.Path, default=IMAGES, metavar="DIR", help="docs/images by default")
    given = parser.parse_args()
    source = given.recording or result_files.recording("streams.json")
    if source is None:
        print("no picture of streams: benchmarks/recordings must have a GPU's streams.json, got none")
        return
    recording = json.loads(source.read_text(encoding="utf-8"))

    def draw_one(name: str) -> None:
        if not PICTURES[name](recording, given.output / name):
            print(f"no {name}: {source} has nothing to draw there")

    for name in PICTURES:
        result_files.save_picture(functools.partial(draw_one, name), given.output / name)


if __name__ == "__main__":
    main()
