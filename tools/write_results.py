"""Writes the tables of benchmarks/results into the README and docs/measurements, nothing by hand.

Each goes between the two `results` markers of its file.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKERS = re.compile(r"(<!-- results:begin -->\n).*?(<!-- results:end -->)", re.DOTALL)
# Columns of peers that the tables show; the files hold all of them.
PEERS = ["torch", "torch_compile", "torchvision", "copy", "copy_", "sequential", "prefetch", "hand_written"]
CUDA_PIPELINE = ("single_stage", "two_stage", "multi_stage", "producer_consumer", "thread_scope")


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def heading(document: dict) -> str:
    return f"**{document['suite']}** in microseconds, {document['gpu']}, torch {document['torch']}, {document['date']}"


def table(document: dict) -> str:
    peers = [peer for peer in PEERS if any(case["peers"].get(peer) is not None for case in document["cases"])]
    lines = [
        heading(document),
        "",
        f"| case | schedule | sluice | floor | efficiency | {' | '.join(peers)} |",
        f"|---|---|---|---|---|{'---|' * len(peers)}",
    ]
    for case in document["cases"]:
        chosen = f"{case['schedule']}{' (auto)' if case['auto'] else ''}"
        row = [case["name"], chosen, cell(case["time_us"]), cell(case["floor_us"]), f"{case['efficiency']:.2f}"]
        lines.append(f"| {' | '.join(row + [cell(case['peers'].get(peer)) for peer in peers])} |")
    return "\n".join(lines)


def by_schedule(document: dict) -> str:
    """A line a problem and a column a schedule; what `auto` picks is bold, and compared with the others."""
    problems: dict[str, dict[str, float]] = {}
    picked: dict[str, dict] = {}
    for case in document["cases"]:
        key = json.dumps(case["params"], sort_keys=True)
        if case["auto"]:
            picked[key] = case
        else:
            problems.setdefault(key, {})[case["schedule"]] = case["time_us"]
    names = list(next(iter(problems.values())))
    lines = [
        heading(document) + "; bold: `auto`'s choice",
        "",
        "| case | auto | auto / best | best with `cuda::pipeline` / auto | "
        + " | ".join(f"`{name}`" for name in names)
        + " |",
        f"|---|---|---|---|{'---|' * len(names)}",
    ]
    for key, times in problems.items():
        auto = picked[key]
        pipeline = min(time for name, time in times.items() if name in CUDA_PIPELINE)
        ratios = [f"{auto['time_us'] / min(times.values()):.2f}", f"{pipeline / auto['time_us']:.2f}"]
        cells = [f"**{cell(us)}**" if name == auto["schedule"] else cell(us) for name, us in times.items()]
        lines.append(f"| {' | '.join([auto['name'], cell(auto['time_us']), *ratios, *cells])} |")
    return "\n".join(lines)


def by_depth(document: dict) -> str:
    """A line a kernel and a column a depth."""
    kernels: dict[str, dict[int, float]] = {}
    for case in document["cases"]:
        kernels.setdefault(case["name"].rsplit(" ", 1)[0], {})[case["depth"]] = case["time_us"]
    depths = sorted({depth for times in kernels.values() for depth in times})
    lines = [
        heading(document),
        "",
        f"| case and schedule | {' | '.join(map(str, depths))} |",
        f"|---|{'---|' * len(depths)}",
    ]
    for name, times in kernels.items():
        lines.append(f"| {name} | {' | '.join(cell(times.get(depth)) for depth in depths)} |")
    return "\n".join(lines)


MEASUREMENTS = ROOT / "docs" / "measurements"
# Where a suite's table stands, and its form; all others stand in the README.
ELSEWHERE = {
    "schedules": (MEASUREMENTS / "schedules.md", by_schedule),
    "depth": (MEASUREMENTS / "schedules.md", by_depth),
    "stream": (MEASUREMENTS / "streams.md", table),
}


def documents() -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(ROOT.glob("benchmarks/results/*/*.json"))]


def render() -> dict[pathlib.Path, str]:
    """What belongs between the markers of each file."""
    found = documents()
    tables = {ROOT / "README.md": [table(document) for document in found if document["suite"] not in ELSEWHERE]}
    for suite, (path, form) in ELSEWHERE.items():
        tables.setdefault(path, []).extend(form(document) for document in found if document["suite"] == suite)
    empty = "No measurements yet: `make bench` on a machine with a GPU writes them."
    return {path: "\n\n".join(written) or empty for path, written in tables.items()}


def main() -> int:
    stale = 0
    for path, tables in render().items():
        text = path.read_text()
        written = MARKERS.sub(lambda match, tables=tables: match[1] + tables + "\n" + match[2], text)
        if "--check" in sys.argv:
            stale += written != text
        else:
            path.write_text(written)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
