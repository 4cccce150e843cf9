"""Where results are written, and how."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .schema import Document, validate


def gpu_slug(name: str) -> str:
    """The folder of a GPU's results: `NVIDIA H200` gives `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def result_path(directory: Path, document: Document) -> Path:
    """`<directory>/<gpu>/<suite>.json`."""
    return directory / gpu_slug(document["gpu"]) / f"{document['suite']}.json"


def write(directory: Path, document: Document) -> Path:
    """Validates the document and writes it below `directory`, one case a line, so that a diff shows what moved.

    Raises:
        ValueError: the document does not validate; nothing is written.
    """
    validate(document)
    head = {name: value for name, value in document.items() if name != "cases"}
    rows = ",\n".join("    " + json.dumps(row, allow_nan=False) for row in document["cases"])
    text = json.dumps(head, indent=2, allow_nan=False).removesuffix("\n}") + ',\n  "cases": [\n' + rows + "\n  ]\n}\n"
    path = result_path(directory, document)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
