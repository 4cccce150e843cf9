"""Processes of one gloo group on this machine, which run functions of the tests."""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import sluice
from forked import fork_server

DEADLINE = 120.0  # seconds for a call; one that hangs fails then
GRACE = 5.0  # seconds for the others after an error that no test expects


def run_program(path: pathlib.Path, *arguments: str, ranks: int | None = None, **environment: str) -> list[str]:
    """The lines that a program prints, alone or as so many ranks of torchrun."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks else []
    package = str(pathlib.Path(sluice.__file__).parent.parent)
    named = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]), **environment}
    command = [sys.executable, *launcher, str(path), *arguments]
    ran = subprocess.run(command, env=named, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


class Ranks:
    """`size` processes of one default group, with gloo on the loopback device, or NCCL with a GPU each.

    Without a backend they have no group, but know their RANK and WORLD_SIZE as torchrun's processes do. Functions must
    be importable by their module's name: they are in modules of this folder or of tests/helpers.
    """

    def __init__(self, size: int, backend: str | None = "gloo") -> None:
        self.size = size
        self.is_alive = True
        self._folder = tempfile.TemporaryDirectory()
        store = str(pathlib.Path(self._folder.name) / "store")
        context = multiprocessing.get_context("spawn") if backend == "nccl" else fork_server()
        self._processes, self._pipes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, store, backend, theirs), daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """The results of all ranks. An error of any of them ends the processes."""
        answers = self.answers(function, *arguments)
        failed = [f"rank {rank}: {text}" for rank, (text, _) in enumerate(answers) if text]
        if failed:
            self.close()
            raise AssertionError("\n".join(failed))
        return [result for _, result in answers]

    def answers(self, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Any]]:
        """The error's text and the result of each rank; "ended" for a process that has ended."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send((function, arguments))
        found = [("no answer", None)] * self.size
        waiting, end = dict(zip(self._pipes, range(self.size), strict=True)), time.monotonic() + DEADLINE
        while waiting and (ready := multiprocessing.connection.wait(list(waiting), max(end - time.monotonic(), 0))):
            for pipe in ready:
                rank = waiting.pop(pipe)
                try:
                    found[rank] = pipe.recv()
                except (EOFError, OSError):
                    found[rank] = "ended", None
                if found[rank][0] not in ("", "ended"):
                    end = min(end, time.monotonic() + GRACE)  # others may wait for it
        return found

    def close(self) -> None:
        """Ends the processes, whatever they do, and waits for their end."""
        self.is_alive = False
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()
        self._folder.cleanup()


def _serve(rank: int, size: int, store: str, backend: str | None, pipe: multiprocessing.connection.Connection) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo"} | ({} if backend else {"RANK": str(rank), "WORLD_SIZE": str(size)})
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if backend == "nccl":
        torch.cuda.set_device(rank)
    if backend:
        timeout = datetime.timedelta(seconds=DEADLINE)
        dist.init_process_group(backend, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timeout)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("", function(*arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))
