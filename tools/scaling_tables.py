"""Tables of docs/scaling.md: what record_scaling.py measured, and the halo's share reckoned for two networks.

extra   = small kernels + message                     message = latency + halo / link
share   = extra / (kernel + extra)                    kernel  = 2 * B * C * n * element size / memory
hidden  = the same, but the message costs only what is longer than the kernel
"""

import dataclasses
import json
import math
import pathlib

from result_files import ROOT
from table_text import lines_of

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
    """One line per number of processes."""
    if not path.exists():
        return "Not measured yet: `python benchmarks/record_scaling.py`."
    found = json.loads(path.read_text())
    first = found["rows"][0]

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
        f"taps, float32, gloo, {found['cores']} cores, a thread for each process, torch {found['torch']}, "
        f"{found['date']}, load {found['load']} before the first run"
    )
    return "\n".join([heading, "", *lines_of(header, map(row, found["rows"]))])


def scaling() -> str:
    return f"{measured()}\n\n{reckoned()}"
