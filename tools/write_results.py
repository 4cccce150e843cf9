"""Writes the README's tables from benchmarks/results: between the two `results` markers, nothing by hand."""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
MARKERS = re.compile(r"(<!-- results:begin -->\n).*?(<!-- results:end -->)", re.DOTALL)
# Columns of peers that the tables show; the files hold all of them.
PEERS = ["torch", "torch_compile", "copy"]


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def table(document: dict) -> str:
    peers = [peer for peer in PEERS if any(case["peers"].get(peer) is not None for case in document["cases"])]
    lines = [
        f"**{document['suite']}** in microseconds, {document['gpu']}, torch {document['torch']}, {document['date']}",
        "",
        f"| case | schedule | sluice | floor | efficiency | {' | '.join(peers)} |",
        f"|---|---|---|---|---|{'---|' * len(peers)}",
    ]
    for case in document["cases"]:
        chosen = f"{case['schedule']}{' (auto)' if case['auto'] else ''}"
        row = [case["name"], chosen, cell(case["time_us"]), cell(case["floor_us"]), f"{case['efficiency']:.2f}"]
        lines.append(f"| {' | '.join(row + [cell(case['peers'].get(peer)) for peer in peers])} |")
    return "\n".join(lines)


def render() -> str:
    paths = sorted(ROOT.glob("benchmarks/results/*/*.json"))
    if not paths:
        return "No measurements yet: `make bench` on a machine with a GPU writes them.\n"
    return "\n\n".join(table(json.loads(path.read_text())) for path in paths) + "\n"


def main() -> int:
    text = README.read_text()
    written = MARKERS.sub(lambda match: match[1] + render() + match[2], text)
    if "--check" in sys.argv:
        return 0 if written == text else 1
    README.write_text(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
