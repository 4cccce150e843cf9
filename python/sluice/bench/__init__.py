"""Benchmarks: `python -m sluice bench <suite>...` times sluice, its peers and its floor.

    benchmarks/bench_<suite>.py   SUITE: cases, each of which makes a Workload      suite.py
    runner.py                     checks the result; times ours, floor, peers       check.py, timing.py, ceilings.py
    benchmarks/results/<gpu>/     what is published: a file a suite, or a part      schema.py, source_hash.py

The clock: CUDA events, an L2 that holds nothing of the tensors, medians, peers interleaved with ours. Suites `decode`
and `codecs` are warm, in a CUDA graph, `overhead` is timed on the host, and `models` from a call until its result is
there, as are the networks of `codecs`.

Dense convolutions in float32 are measured twice: "tf32" with torch's TF32 setting for convolutions on, "fp32" with it
off. The setting holds for the whole case, the peers included.
"""

from .cli import load_suite, main
from .schema import validate
from .source_hash import checkout_root, source_hash
from .suite import ALLOWS_TF32, DTYPES, SCHEDULES, Case, Suite, Workload, compiled, fresh, runs_linked
from .timing import CallClock, GraphClock, HostClock

__all__ = [
    "ALLOWS_TF32",
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
