"""Tables of the recordings in benchmarks/recordings."""

import json

from result_files import recording
from table_text import cell, lines_of


def timelines() -> str:
    """The timelines of benchmarks/record_streams.py, one line each."""
    path = recording("streams.json")
    if path is None:
        return "No timelines are recorded."
    found = json.loads(path.read_text())

    def share(one: dict, key: str) -> str:
        return f"{100 * one[key]:.0f}" if key in one else "–"

    rows = [
        [one["what"], one["label"], f"{one['total_ms']:.2f}", share(one, "overlap"), share(one, "hidden")]
        for one in found["timelines"]
    ]
    machine = f"{found['gpu']}, torch {found['torch']}, CUDA {found['cuda']}, recorded {found['date']}"
    header = ["what", "timeline", "ms", "two rows busy, %", "host work hidden, %"]
    return "\n".join([f"**timelines**, {machine}, {found['mebibytes']} MiB each way", "", *lines_of(header, rows)])


def layers() -> str:
    """The layers of benchmarks/record_layers.py, one line each; empty if none is recorded."""
    path = recording("layers.json")
    if path is None:
        return ""
    found = json.loads(path.read_text())

    def row(case: dict) -> list[str]:
        before, after = case["before"], case["after"]
        times = [before["conv_us"], after["conv_us"], before["layer_us"], after["layer_us"]]
        shares = [f"{100 * state['conv_share']:.2f}" for state in (before, after)]
        return [f"{name(case)}, C = {case['channels']}", *map(cell, times), *shares]

    def name(case: dict) -> str:
        return f"{case['layer']} {case['what']} {case['batch']} x {case['tokens']} {case['dtype']}"

    machine = f"{found['gpu']}, torch {found['torch']}, CUDA {found['cuda']}, transformers {found['transformers']}"
    header = ["layer", "convolution before", "after", "layer before", "after", "share before, %", "after, %"]
    lines = lines_of(header, (row(case) for case in found["cases"] if "left_out" not in case))
    left_out = [f"Left out: {name(case)} ({case['left_out']})." for case in found["cases"] if "left_out" in case]
    heading = f"**layers**, microseconds, {machine}, scans by {found['scans']}, recorded {found['date']}"
    return "\n".join([heading, "", *lines, *([""] if left_out else []), *left_out])
