"""Says whether tests/gpu/receipt.json was made with this tree; exit status 1 where it was not."""

import json
import sys

from source_tree import RECEIPT, source_hash


def main() -> int:
    if not RECEIPT.exists():
        print("receipt: none; run `make gpu-check` on a machine with a GPU")
        return 1
    receipt = json.loads(RECEIPT.read_text())
    parts = ", ".join(f"{name} {part['passed']} passed" for name, part in receipt["parts"].items())
    made = f"{receipt['date']} on {receipt['gpu']}, torch {receipt['torch']}: {parts}"
    if receipt["source_hash"] != source_hash():
        print(f"receipt: stale. It was made {made}, but the sources have changed since")
        return 1
    print(f"receipt: matches. Made {made}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
