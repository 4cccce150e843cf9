"""Refuses results without the times of a peer that the committed files have, so that no table loses a column unseen.

    lost_peers.py [PEER ...]     refuses the loss of any other peer

A row has lost a peer if the same case, by its name and parameters, had a time for it in the last commit.
"""

import collections
import json
import pathlib
import subprocess
import sys

from source_tree import ROOT


def key_of(case: dict) -> str:
    return json.dumps([case["name"], case["params"]], sort_keys=True)


def lost(old: dict, new: dict) -> dict[str, int]:
    """The rows of each peer that `old` times and `new` does not. Cases that only one document has do not count."""
    cases = {key_of(case): case["peers"] for case in new["cases"]}
    rows: collections.Counter[str] = collections.Counter()
    for case in old["cases"]:
        peers = cases.get(key_of(case))
        if peers is not None:
            rows.update(name for name, us in case["peers"].items() if us is not None and peers.get(name) is None)
    return dict(rows)


def committed(root: pathlib.Path, path: pathlib.Path) -> dict | None:
    """The file as the last commit has it; None without git, without a commit, or if the file is new."""
    name = path.relative_to(root).as_posix()
    try:
        shown = subprocess.run(["git", "show", f"HEAD:./{name}"], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return json.loads(shown.stdout) if shown.returncode == 0 else None


def losses(root: pathlib.Path) -> dict[pathlib.Path, dict[str, int]]:
    """The lost rows of each peer, for each file of results that has lost some."""
    found = {}
    for path in sorted(root.glob("benchmarks/results/*/*.json")):
        old = committed(root, path)
        if old is not None and (rows := lost(old, json.loads(path.read_text()))):
            found[path] = rows
    return found


def main(root: pathlib.Path = ROOT) -> int:
    allowed = set(sys.argv[1:])
    refused: set[str] = set()
    for path, rows in losses(root).items():
        missing = {name: count for name, count in sorted(rows.items()) if name not in allowed}
        if missing:
            refused.update(missing)
            counts = " and ".join(f"{name} in {count} row{'s' * (count > 1)}" for name, count in missing.items())
            name, suite = path.relative_to(root).as_posix(), path.stem.partition(".")[0]
            print(f"{name}: suite {suite} must keep the peers of the last commit, got no time for {counts}")
    if refused:
        peers = " ".join(sorted(refused | allowed))
        print(f'measure again with these peers, or give them up: make results LOSE="{peers}"')
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
