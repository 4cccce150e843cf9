"""A table of a build's time: core seconds by kind of file, from build/cmake/.ninja_log.

The log has each file's last time, so it does not describe a cold build after a cached or an incremental one.
"""

import collections
import pathlib
import sys

from source_tree import ROOT

BUILD = ROOT / "build" / "cmake"
# A file has the first kind whose text is in its path.
KINDS = {
    "modules/": "kernels with open chains, as LTO-IR",
    "prelinked/": "chains that come linked",
    "sluice_cpu_": "CPU kernels, three instruction sets",
    "conv1d/dense/": "dense convolutions",
    "launch_staged": "kernels with a ring",
    ".cu.o": "kernels without a ring",
    "_C.dir/": "ops, for both libraries",
    "_C_cuda.dir/": "ops, for both libraries",
    "tests/cpp": "tests/cpp",
}
REST = "host side, libraries"


def seconds(log: pathlib.Path) -> dict[str, float]:
    """Seconds for each file made; the log names some twice, from the build folder and from the root."""
    found = {}
    for line in log.read_text().splitlines()[1:]:
        begin, end, _, path, _ = line.split("\t")
        found[path.rpartition("build/cmake/")[2]] = (int(end) - int(begin)) / 1000
    return found


def kind_of(path: str) -> str:
    return next((kind for part, kind in KINDS.items() if part in path), REST)


def main() -> int:
    log = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else BUILD / ".ninja_log"
    times = seconds(log)
    files, total = collections.Counter(map(kind_of, times)), collections.Counter()
    for path, time in times.items():
        total[kind_of(path)] += time
    print("| | files | seconds of a core |\n|---|---|---|")
    for kind, time in total.most_common():
        print(f"| {kind} | {files[kind]} | {time:.0f} |")
    print(f"| **all** | {len(times)} | **{sum(times.values()):.0f}** |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
