"""The examples of a document on each rank."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch.distributed as dist

from snippets import snippets


def run_document(text: str) -> int:
    """Runs the python blocks in the group that there is; returns how many there were."""
    namespace: dict[str, Any] = {"__name__": "document"}
    blocks = [block.text for block in snippets(text) if block.language == "python" and not block.skipped]
    with mock.patch.object(dist, "init_process_group"), mock.patch.object(dist, "destroy_process_group"):
        for block in blocks:
            exec(block, namespace)
    return len(blocks)
