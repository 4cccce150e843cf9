"""Tables of docs/scaling.md: what record_scaling.py measured, and the halo's share reckoned for two networks.

measured: share  = (split - alone) / split            by the median steps of halo_steps.py
          hidden = 1 - (split - alone) / (by hand - alone), at least 0

reckoned:

extra   = small kernels + message                     message = latency + halo / link
share   = extra / (kernel + extra)                    kernel  = 2 * B * C * n * element size / memory
hidden  = the same, but the message costs only what is longer than the kernel
"""

import dataclasses
import json
import math
import pathlib

from result_files import ROOT, recording, tree_hash
from table_text import cell, lines_of

RECORDED = ROOT / "benchmarks/recordings/cpu/scaling.json"
MEMORY = 3.0e12  # bytes/s of a copy on the H100, read and write together: `copy_tbps` in benchmarks/results
SMALL_KERNELS = 2 * 5e-6  # s: packing the halo, and the first outputs once more; assumed, launch included
BATCH, CHANNELS, ELEMENT = 1, 5120, 2  # one sequence of Mamba-2.8B's inner channels in bfloat16
TAPS, POSITIONS = (4, 128), (1 << 14, 1 << 17, 1 << 20)
MOST = 0.1  # of a step


@dataclasses.dataclass(frozen=True)
class Network:
    """A link between neighbours: its name, bytes/s each way, and seconds until a message's first byte."""

    name: str
    rate: float
    latency: float


NETWORKS = (Network("NVLink", 450e9, 3e-6), Network("InfiniBand", 50e9, 5e-6))


def halo(taps: int) -> int:
    """Bytes that a rank receives."""
    return BATCH * CHANNELS * (taps - 1) * ELEMENT


def kernel(positions: int) -> float:
    """Seconds of the convolution: every input is read once, every output written once."""
    return 2 * BATCH * CHANNELS * positions * ELEMENT / MEMORY


def message(taps: int, network: Network) -> float:
    return network.latency + halo(taps) / network.rate


def share(taps: int, positions: int, network: Network, hidden: bool = False) -> float:
    """The halo's part of a call, from 0 to 1."""
    arrives = message(taps, network)
    extra = SMALL_KERNELS + (max(arrives - kernel(positions), 0.0) if hidden else arrives)
    return extra / (kernel(positions) + extra)


def least(taps: int, network: Network) -> int:
    """The fewest positions a rank with a share of at most MOST, nothing hidden."""
    return math.ceil((1 / MOST - 1) * (SMALL_KERNELS + message(taps, network)) / kernel(1))


def reckoned() -> str:
    rows = []
    for taps in TAPS:
        for positions in POSITIONS:
            cells = [str(taps), f"2^{positions.bit_length() - 1}", f"{halo(taps) / 1000:.0f}"]
            cells.append(f"{1e6 * kernel(positions):.0f}")
            for network in NETWORKS:
                cells.append(f"{1e6 * message(taps, network):.1f}")
                cells += [f"{100 * share(taps, positions, network, hidden):.1f}" for hidden in (False, True)]
            rows.append(cells)
    header = ["K", "positions a rank", "halo, kB", "kernel, us"]
    for network in NETWORKS:
        header += [f"{network.name}: message, us", "share, %", "share if hidden, %"]
    bounds = ", ".join(
        f"{least(taps, network):,} (K = {taps}, {network.name})" for taps in TAPS for network in NETWORKS
    )
    links = " and ".join(f"{n.name} {n.rate / 1e9:.0f} GB/s each way and {1e6 * n.latency:.0f} us" for n in NETWORKS)
    heading = (
        f"**Reckoned**: B = {BATCH}, C = {CHANNELS}, bfloat16, dilation 1; memory {MEMORY / 1e12:.1f} TB/s, {links} "
        f"a message, {1e6 * SMALL_KERNELS:.0f} us of small kernels"
    )
    below = f"With nothing hidden the share is at most {100 * MOST:.0f} % from these positions a rank on: {bounds}."
    return "\n".join([heading, "", *lines_of(header, rows), "", below])


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
    return "\n\n".join(part for part in (on_gpus(), measured(), reckoned()) if part)
