"""Runs programs in ranks without a group, which costs less than a process for each."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import runpy
from unittest import mock

import torch
import torch.distributed as dist


def run_program_here(path: str, arguments: list[str], store: str | None = None) -> list[str]:
    """The lines that it prints on the CPU. Ranks meet at the file `store`; without one it runs alone."""
    joined, known = dist.init_process_group, dict(os.environ)
    if store is None:
        del known["RANK"]
    else:
        rank, size = (int(known[name]) for name in ("RANK", "WORLD_SIZE"))
        joined = functools.partial(joined, init_method=f"file://{store}", rank=rank, world_size=size)
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        mock.patch("sys.argv", [path, *arguments]),
        mock.patch.dict(os.environ, known, clear=True),
        mock.patch.object(torch.cuda, "is_available", return_value=False),
        mock.patch.object(dist, "init_process_group", joined),
    ):
        code: object = 0
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code
    assert code == 0, printed.getvalue()
    return printed.getvalue().splitlines()
