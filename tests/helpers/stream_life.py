"""Streams when a process ends, forks or is interrupted: cases, each for a process of its own.

    python tests/helpers/stream_life.py [--times 200] [--device cuda] [CASE ...]

runs cases repeatedly in children of one process that has imported torch and has not streamed; each child must end by
itself, in time, with status 0 and without output. tests/streams/test_life.py runs them several times.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import select
import signal
import sys
import time

import torch

import stream_life_exit
import stream_life_fork
import stream_life_interrupt
from sluice.stream.map import inline
from stream_life_common import CASES

assert stream_life_exit, stream_life_fork
assert stream_life_interrupt
# Cases that wait for, or hold up, the engine's threads.
OF_THE_ENGINE = {"exit_while_copies_do_not_end", "interrupt_while_copies_run", "interrupt_a_wait_for_a_future"}
SECONDS = 60  # a case takes a tenth of a second if nothing hangs; seconds on a GPU


def run_in_child(name: str, device: str, seconds: float = SECONDS) -> str:
    """Runs a case in a child of this process; the failure, or nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.close(write)
        os.setsid()
        random.seed()
        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
        inline.enabled = device != "engine"
        CASES[name]("cpu" if device == "engine" else device)
        sys.exit(0)  # through the interpreter's whole shutdown
    os.close(write)
    said, hangs, deadline = b"", False, time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            hangs = True
            break
        part = os.read(read, 65536)
        if not part:
            break
        said += part
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL) if hangs else None
    _, status = os.waitpid(pid, 0)
    if hangs:
        return f"hangs; said {said.decode()!r}"
    return "" if status == 0 and not said else f"ended with status {status}; said {said.decode()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all by default")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--device", default="engine", help="cuda; engine: the CPU as a device; cpu: the calling thread")
    parser.add_argument(
        "--serve", action="store_true", help="read lines `CASE DEVICE`, answer each with what was wrong"
    )
    given = parser.parse_args()
    wrong = 0
    gc.freeze()  # a child's last collection skips the parent's objects
    for line in sys.stdin if given.serve else ():
        print(json.dumps(run_in_child(*line.split())), flush=True)
    if given.serve:
        return 0
    for name in given.cases or (CASES if given.device != "cpu" else CASES.keys() - OF_THE_ENGINE):
        begin, failures = time.monotonic(), []
        for _ in range(given.times):
            if text := run_in_child(name, given.device):
                failures.append(text)
                print(f"{name}: {text}", file=sys.stderr, flush=True)
        wrong += len(failures)
        seconds = time.monotonic() - begin
        print(f"{name}: {given.times - len(failures)} of {given.times} in {seconds:.0f} s", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    main_status = main()
    sys.stdout.flush()
    sys.exit(main_status)
