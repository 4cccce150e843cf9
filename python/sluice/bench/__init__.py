"""Benchmarks: `python -m sluice bench <suite>...` times sluice, its peers and its floor.

    benchmarks/bench_<suite>.py   SUITE: cases, each of which makes a Workload      suite.py
    runner.py                     checks the result; times ours, floor, peers       check.py, timing.py, ceilings.py
    benchmarks/results/<gpu>/     what is published: a file a suite, or a part      schema.py, source_hash.py

The clock: CUDA events, an L2 that holds nothing of the tensors, medians, peers interleaved with ours. Suite `decode` is
warm, in a CUDA graph, `overhead` is timed on the host, and `models` from a call until its result is there.
"""

from .cli import load_suite, main
from .schema import validate
from .source_hash import checkout_root, source_hash
from .suite import DTYPES, SCHEDULES, Case, Suite, Workload, compiled, fresh, runs_linked
from .timing import CallClock, GraphClock, HostClock

__all__ = [
    "DTYPES",
    "SCHEDULES",
    "CallClock",
    "Case",
    "GraphClock",
    "HostClock",
    "Suite",
    "Workload",
    "checkout_root",
    "compiled",
    "fresh",
    "load_suite",
    "main",
    "runs_linked",
    "source_hash",
    "validate",
]
