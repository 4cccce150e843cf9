"""Says whether tests/gpu/receipt.json was made with this tree; exit status 1 if not."""

import json
import sys

from part_sources import part_hash
from source_tree import RECEIPT


def main() -> int:
    if not RECEIPT.exists():
        print("receipt: none; run `make gpu-check` on a machine with a GPU")
        return 1
    parts = json.loads(RECEIPT.read_text())["parts"]
    stale = [name for name, part in parts.items() if part.get("sources") != part_hash(name)]
    for name, part in parts.items():
        made = f"{part['passed']} passed on {part['gpu']}, {part['date']}, torch {part['torch']}"
        print(f"receipt: {name}: {made}{'; the sources have changed since' if name in stale else ''}")
    print(f"receipt: {'stale: ' + ', '.join(stale) if stale else 'matches'}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
