"""The tables of suite `codecs`: single layers, then networks."""

from __future__ import annotations

from collections.abc import Sequence

from result_files import measured
from table_text import MICROSECONDS, MILLISECONDS, cell, lines_of

STEPS = 25  # that a network's time is given for
# The columns of peers: the first is sluice, the others are by hand.
PEERS = {
    "sluice_eager": "sluice, eager",
    "torch": "by hand, eager",
    "torch_graph": "by hand, in a graph",
    "torch_compile": "by hand, compiled, in a graph",
}


def codecs(document: dict) -> str:
    """The layers and the networks that were measured."""
    cases = document["cases"]
    layers = [case for case in cases if "Cin" in case["params"]]
    networks = [case for case in cases if case not in layers]
    parts = [
        f"**codecs**, {measured([document])}; sluice in a CUDA graph; in brackets a time over sluice's",
        "By hand: `torch.cat` with the inputs that are kept, `F.conv1d` or `F.conv_transpose1d`, and `copy_`.",
    ]
    if layers:
        unit, scale = MICROSECONDS
        said = f"Layers, {unit} a call among 100 in a graph, warm; the floor too reads from L2 what fits there."
        parts += [said, _table("layer", layers, scale)]
    if networks:
        unit, scale = MILLISECONDS
        parts += [f"Networks, {unit} for {STEPS} steps, a graph each.", _table("network", networks, STEPS * scale)]
    return "\n\n".join(parts)


def _table(name: str, cases: Sequence[dict], scale: float) -> str:
    def peer_cell(case: dict, peer: str) -> str:
        us = case["peers"].get(peer)
        return cell(us) if us is None else f"{cell(us, scale, 2)} ({us / case['time_us']:.2f})"

    rows = [
        [
            *(case["name"], cell(case["time_us"], scale, 2), cell(case["floor_us"], scale, 2)),
            *(f"{case['efficiency']:.2f}", *(peer_cell(case, peer) for peer in PEERS), f"{case['rel_err']:.1e}"),
        ]
        for case in cases
    ]
    return "\n".join(lines_of([name, "sluice", "floor", "efficiency", *PEERS.values(), "error"], rows))
