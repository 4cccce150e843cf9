"""examples/ray_batches.py with a worker that dies once, in the middle of its rows.

    ray_worker_dies.py FOLDER [argument of the example ...]

FOLDER gets a file for each worker that was started, and one for the death.
"""

from __future__ import annotations

import os
import pathlib
import runpy
import sys
from typing import Any

import ray

from common import ROOT

FOLDER = pathlib.Path(sys.argv.pop(1))
EXAMPLE = runpy.run_path(str(ROOT / "examples" / "ray_batches.py"))


class Mortal(EXAMPLE["Compander"]):  # type: ignore[misc]
    def __init__(self, *arguments: Any) -> None:
        (FOLDER / f"started_{os.getpid()}").touch()
        super().__init__(*arguments)
        self._calls = 0

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        self._calls += 1
        if self._calls == 2:  # its first block's second batch, so that it has returned rows
            try:
                (FOLDER / "died").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
        return super().__call__(batch)


if __name__ == "__main__":
    # A batch is a block of the result: rows that a worker has returned before its death are there to be doubled.
    ray.data.DataContext.get_current().target_max_block_size = 1 << 20
    raise SystemExit(EXAMPLE["main"](Mortal))
