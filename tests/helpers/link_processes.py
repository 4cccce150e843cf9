"""Separate processes that link, each with its own cache directory and environment."""

from __future__ import annotations

import json
import os
import pathlib
import resource
import subprocess
import sys


def start_process(
    directory: pathlib.Path | str, program: str, limit: int | None = None, **environment: str
) -> subprocess.Popen[str]:
    """A Python program that keeps linked kernels in `directory`, in files of `limit` bytes at most."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "SLUICE_CACHE_DIR": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **paths, **environment},
        preexec_fn=None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


def finish(process: subprocess.Popen[str]) -> tuple[dict, str]:
    """The JSON of the process's last line, and its stderr."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1]), error


def result_of(process: subprocess.Popen[str]) -> dict:
    return finish(process)[0]
