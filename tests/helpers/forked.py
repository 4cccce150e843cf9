"""Runs programs in forks of a server that has imported torch and sluice, which takes seconds, and has no threads.

A fork has the caller's environment and folder, but torch read its own variables when the server started.
"""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import torch

import sluice

PACKAGE = pathlib.Path(sluice.__file__).parent
# Without sluice.distributed and transformers' models: tests show what loads them.
IMPORTED = ["sluice", "torch.distributed.tensor.debug", "torch._functorch.aot_autograd"]


class Ran(NamedTuple):
    """The results of a program, with the names of subprocess.run."""

    returncode: int | None
    stdout: str
    stderr: str


def fork_server() -> Any:
    """The context of multiprocessing whose processes are forks of the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run_forked(path: pathlib.Path, *arguments: str, **environment: str) -> Ran:
    """Runs a Python program with one thread: in a fork, or in its own process where it can see a GPU."""
    given = {**os.environ, **environment}
    if torch.cuda.is_available() and environment.get("CUDA_VISIBLE_DEVICES") != "":
        given["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *sys.path])
        ran = subprocess.run([sys.executable, str(path), *arguments], env=given, capture_output=True, text=True)
        return Ran(ran.returncode, ran.stdout, ran.stderr)
    with tempfile.TemporaryDirectory() as folder:
        process = fork_server().Process(target=_run, args=(str(path), arguments, given, os.getcwd(), folder))
        process.start()
        process.join()
        stdout, stderr = (pathlib.Path(folder, name).read_text() for name in ("1", "2"))
        return Ran(process.exitcode, stdout, stderr)


def _run(path: str, arguments: tuple[str, ...], environment: dict[str, str], folder: str, output: str) -> None:
    for number in (1, 2):
        with open(f"{output}/{number}", "w") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ |= environment
    os.chdir(folder)
    torch.set_num_threads(1)
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(pathlib.Path(path).parent))
    runpy.run_path(path, run_name="__main__")
