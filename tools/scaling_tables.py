"""Tables of docs/scaling.md: what record_scaling.py measured.

share  = (split - alone) / split            by the median steps of halo_steps.py
hidden = 1 - (split - alone) / (by hand - alone), at least 0
"""

import json
import pathlib

from result_files import ROOT, recording, tree_hash
from table_text import cell, lines_of

RECORDED = ROOT / "benchmarks/recordings/cpu/scaling.json"


def measured(path: pathlib.Path = RECORDED) -> str:
    """The example on the CPU, one line per number of processes."""
    if not path.exists():
        return "Not measured yet: `python benchmarks/record_scaling.py --device cpu`."
    found = json.loads(path.read_text())
    how = (
        f"float32, gloo, {found['cores']} cores, a thread for each process, torch {found['torch']}, {found['date']}, "
        f"load {found['load']} before the first run"
    )
    return blocks(found["rows"], how)


def blocks(rows: list[dict], how: str) -> str:
    """The example's block and convolution, with the exchange and without it."""
    first = rows[0]

    def row(one: dict) -> list[str]:
        cells = [str(one["ranks"]), str(one["length"] // one["ranks"])]
        for name in ("block", "convolution"):
            ours, without = one["ms"][name], one["ms"][f"{name}, no halo"]
            share = f"{100 * (ours - without) / ours:.1f}" if one["ranks"] > 1 else "–"
            cells += [f"{ours:.1f}", f"{without:.1f}", share]
        return [*cells, f"{first['ms']['block'] / one['ms']['block']:.2f}"]

    header = ["processes", "positions a rank", "block, ms", "without the exchange", "share, %"]
    header += ["convolution, ms", "without the exchange", "share, %", "one process / block"]
    heading = (
        f"**Measured**: {first['length']} positions, {first['channels']} channels in the convolution, {first['taps']} "
        f"taps, {how}"
    )
    return "\n".join([heading, "", *lines_of(header, map(row, rows))])


WAYS = {"host": "In a loop on the host", "graph": "From a CUDA graph"}


def on_gpus() -> str:
    """The steps of two GPUs, and the example on them; empty if none are recorded."""
    path = recording("scaling.json")
    if path is None:
        return ""
    found = json.loads(path.read_text())
    older = "" if found["source_hash"] == tree_hash() else ", on older sources than this tree's"
    machine = f"{found['gpu']}, NCCL {found['nccl']}, torch {found['torch']}, {found['date']}{older}"
    ways = [way for way in WAYS if way in found]
    if not ways:
        return ""
    first = found[ways[0]]
    heading = (
        f"**Measured on {first['ranks']} GPUs**: microseconds a step, B = 1, C = {first['channels']}, "
        f"{first['dtype']}, SiLU, {machine}"
    )
    how = f"bfloat16, a GPU for each process, {machine}"
    return "\n\n".join([heading, *(steps(found, way) for way in ways), blocks(found["rows"], how)])


def steps(found: dict, way: str) -> str:
    """What the exchange adds to a step, one line for each number of taps and of positions."""
    urgent = {(row["taps"], row["positions"]): row["us"] for row in found.get(f"{way}_priority", {"rows": []})["rows"]}

    def row(one: dict) -> list[str]:
        us, other = one["us"], urgent.get((one["taps"], one["positions"]))
        by_hand, extra = us["by_hand"] - us["alone"], us["split"] - us["alone"]
        hidden = f"{100 * max(1 - extra / by_hand, 0):.0f}" if by_hand > 0 else "–"
        high = "–" if other is None else f"{other['split'] - other['alone']:.0f}"
        return [
            *(str(one["taps"]), f"2^{one['positions'].bit_length() - 1}", cell(us["alone"]), f"{by_hand:.0f}"),
            *(f"{extra:.0f}", high, f"{100 * extra / us['split']:.1f}", hidden),
        ]

    header = [
        "K",
        "positions a rank",
        "alone",
        "by hand adds",
        "split adds",
        "with high priority",
        "share, %",
        "hidden, %",
    ]
    return "\n".join([f"{WAYS[way]}:", "", *lines_of(header, map(row, found[way]["rows"]))])


def scaling() -> str:
    return "\n\n".join(part for part in (on_gpus(), measured()) if part)
