"""Streams at the end of a process, across forks and under Ctrl-C: each case in processes of its own, ten on a GPU."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

import sluice
from common import ROOT
from sluice.stream.device.engine import EngineDevice
from stream_life import CASES, OF_THE_ENGINE, SECONDS

TIMES = {"cpu": 1, "engine": 1, "cuda": 10}  # every change runs the CPU's cases; stream_life.py has --times
Run = Callable[[str, str], str]


@pytest.fixture(scope="module")
def in_a_process() -> Iterator[Run]:
    """Runs a case in a child of a process that has imported torch; returns the failure."""
    program = [sys.executable, str(ROOT / "tests" / "helpers" / "stream_life.py"), "--serve"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        said, heard = server.stdin, server.stdout

        def run(case: str, device: str) -> str:
            said.write(f"{case} {device}\n")
            said.flush()
            ready, _, _ = select.select([heard], [], [], SECONDS + 60)
            return str(json.loads(heard.readline())) if ready else "the server hangs"

        try:
            yield run
        finally:
            server.kill()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("where", ["cpu", "cuda" if torch.cuda.is_available() else "engine"])
def test_a_process(in_a_process: Run, where: str, case: str) -> None:
    if where == "cpu" and case in OF_THE_ENGINE:
        pytest.skip("is about the engine's threads")
    for _ in range(TIMES[where]):
        assert in_a_process(case, where) == ""


def test_torn_commands_are_refused_whole() -> None:
    source, slot = torch.ones(8), torch.zeros(8)
    engine = EngineDevice(torch.device("cpu"), 2, 1, (1, 4096))
    try:
        engine.begin()
        engine.fetch(0, [], [[source.data_ptr(), slot.data_ptr(), 2, 0, 4, 1, 8, 4]])
        engine.commit(0)
        with pytest.raises(RuntimeError, match="_transfer: commands must be whole"):
            engine._submit(engine._take_commands()[:-1])  # type: ignore[attr-defined]
        assert sum(engine.numbers()[0]) == 0  # the complete fetch is not in flight either
        assert engine.drain(1000)
        assert not slot.any()
    finally:
        engine.close()


@pytest.mark.usefixtures("through_the_engine")
def test_a_waiter_issues_nothing() -> None:
    """A thread may still wait for an old future while another builds the commands of the next run."""
    x = torch.randn(8, 3)
    with sluice.Streamer("cpu") as streamer:
        future = streamer.map(torch.neg, x, chunk_size=2, non_blocking=True)
        run, works = future._run, list(future._run.works)
        assert torch.equal(future.result(), -x)
        engine, run.works = works[0].engine, works
        engine.begin()
        engine.commit(0)
        before = list(engine._commands)
        run.wait(1)
        assert before
        assert engine._commands == before
