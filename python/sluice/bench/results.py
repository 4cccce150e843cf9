"""Paths and format of the result files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from .schema import Document, validate


def gpu_slug(name: str) -> str:
    """The folder of a GPU's results: `NVIDIA H200` gives `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def result_path(directory: Path, document: Document, part: str | None = None) -> Path:
    """`<directory>/<gpu>/<suite>.json`; of a part of a suite `<directory>/<gpu>/<suite>.<part>.json`."""
    name = document["suite"] if part is None else f"{document['suite']}.{part}"
    return directory / gpu_slug(document["gpu"]) / f"{name}.json"


def write(directory: Path, document: Document, part: str | None = None) -> Path:
    """Validates the document and writes it below `directory`, one line per case, so that diffs are per case.

    The file is replaced at once: a run that is cut off leaves the old file or the new file.

    Raises:
        ValueError: the document does not validate; nothing is written.
    """
    validate(document)
    head = {name: value for name, value in document.items() if name != "cases"}
    rows = ",\n".join("    " + json.dumps(row, allow_nan=False) for row in document["cases"])
    text = json.dumps(head, indent=2, allow_nan=False).removesuffix("\n}") + ',\n  "cases": [\n' + rows + "\n  ]\n}\n"
    path = result_path(directory, document, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path
