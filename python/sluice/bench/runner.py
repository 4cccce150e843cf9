"""Runs a suite: checks each result, then times it beside its floor and its peers."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import traceback
from collections.abc import Callable, Mapping

import torch

from .ceilings import MATMUL_TFLOPS, SPLIT_TIME, TF32_TIME, Ceilings, copy_of
from .check import WrongResultError, check
from .schema import Document, Row
from .suite import DTYPES, SLOW_PEERS, Case, Suite, Workload, runs_linked
from .timing import Call, Clock, Effort, Timing, interleave

_OURS = "sluice"
_FLOOR = "floor"

Report = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a suite.

    Attributes:
        rows: the rows of the cases that passed.
        failures: a line for each case that failed.
    """

    rows: list[Row]
    failures: list[str]


def _usable(peers: Mapping[str, Call | None], device: torch.device, effort: Effort, report: Report) -> dict[str, Call]:
    """The peers that can be timed here. Each has run once, so compilation is not timed."""
    usable = {}
    for name, call in peers.items():
        if call is None or (name in SLOW_PEERS and not effort.slow_peers):
            continue
        try:
            call()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        except Exception as error:  # any exception of a foreign package means only that it is not measured
            reason = (str(error).strip() or "no reason given").splitlines()[0]
            report(f"    {name} not measured: {type(error).__name__}: {reason}")
            continue
        usable[name] = call
    return usable


def run_case(
    case: Case,
    device: torch.device,
    clock: Clock,
    effort: Effort,
    report: Report = print,
    matmul_tflops: float = MATMUL_TFLOPS,
) -> tuple[Row, dict[str, Timing]]:
    """Checks and times one case.

    Args:
        case: what to run.
        device: where.
        clock: takes the samples.
        effort: rounds and samples.
        report: takes lines for people.
        matmul_tflops: the tensor cores' rate on half types, measured in the same run, in TFLOP/s.

    Returns:
        The row to publish, and every timing by name: `sluice`, `floor` and the peers.

    Raises:
        WrongResultError: the result is wrong; nothing was timed.
    """
    with case.tf32_setting():
        return _run_case(case, device, clock, effort, report, _products_tflops(case, device, matmul_tflops))


def _run_case(
    case: Case, device: torch.device, clock: Clock, effort: Effort, report: Report, tflops: float
) -> tuple[Row, dict[str, Timing]]:
    """`tflops` is the rate of the case's products."""
    workload = case.make(device)
    error = check(case, workload)
    peers = _usable(workload.peers, device, effort, report)
    calls: dict[str, Call] = {_OURS: workload.ours}
    if workload.floor_peer is None and workload.link_seconds is None:
        calls[_FLOOR] = copy_of(workload.traffic, device)
    timings = interleave(clock, calls | peers, effort)
    floor_us, floor_kind = _floor(workload, timings, tflops)
    time_us = timings[_OURS].median_us
    row: Row = {
        "name": case.name,
        "params": dict(case.params),
        "time_us": round(time_us, 3),
        "floor_us": round(floor_us, 3),
        "floor_kind": floor_kind,
        "efficiency": float(f"{floor_us / time_us:.4g}"),
        "peers": {name: round(timings[name].median_us, 3) if name in peers else None for name in workload.peers},
        "schedule": workload.plan.schedule,
        "depth": workload.plan.depth,
        "auto": case.auto,
        "linked": runs_linked(workload.ours) if workload.linked is None else workload.linked,
        "rel_err": float(f"{error:.3g}"),
    }
    return row, timings


def _products_tflops(case: Case, device: torch.device, matmul_tflops: float) -> float:
    """The rate of a case's products: half types have the measured rate, and on the CPU that is float32's."""
    if device.type == "cpu" or DTYPES[str(case.params["dtype"])] != torch.float32:
        return matmul_tflops
    return matmul_tflops / (SPLIT_TIME if case.allows_tf32 is False else TF32_TIME)


def _floor(workload: Workload, timings: Mapping[str, Timing], tflops: float) -> tuple[float, str]:
    if workload.link_seconds is not None:
        return 1e6 * workload.link_seconds, "link"
    if workload.floor_peer is not None:
        return timings[workload.floor_peer].median_us, "bytes"
    copy_us = timings[_FLOOR].median_us
    flops_us = max(workload.flops / (workload.fma_tflops * 1e6), workload.matmul_flops / (tflops * 1e6))
    return (copy_us, "bytes") if copy_us >= flops_us else (flops_us, "flops")


def _line(row: Row, timings: Mapping[str, Timing]) -> str:
    peers = "  ".join(
        f"{name} {'-' if us is None else f'{us:.4g} ({timings[name].ratio:.2f}x)'}" for name, us in row["peers"].items()
    )
    return (
        f"{row['name']:<52} {row['time_us']:>9.2f} {row['floor_us']:>9.2f} {row['floor_kind']:<5} "
        f"{row['efficiency']:>6.3f} {row['rel_err']:>8.1e} {row['schedule']:>12}/{row['depth']}  {peers}"
    )


def run_suite(
    suite: Suite,
    device: torch.device,
    clock: Clock,
    effort: Effort,
    report: Report = print,
    matmul_tflops: float = MATMUL_TFLOPS,
) -> Outcome:
    """Runs every case of the suite and reports each line of the table when its case is done.

    A case that raises or whose result is wrong becomes a failure, and the others still run. A suite that has parts is
    run part by part, each as one of `suite.parts()`: what its cases compile is kept until the end, and freed there.
    """
    rows: list[Row] = []
    failures: list[str] = []
    report(f"{suite.name:<52} {'us':>9} {'floor':>9} {'kind':<5} {'eff':>6} {'rel err':>8} {'schedule':>12}    peers")
    benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, suite.cudnn_benchmark
    try:
        for number, case in enumerate(suite.cases):
            if effort.slow_peers and (case.part is None or number == 0):
                torch._dynamo.reset()  # no case inherits the dynamic shapes or the recompile limit of another
            try:
                row, timings = run_case(case, device, clock, effort, report, matmul_tflops)
            except Exception as error:  # one bad case must not cost the measurement of the others
                if not isinstance(error, WrongResultError):
                    report(traceback.format_exc(limit=-3))
                failures.append(f"{suite.name}: {case.name}: {type(error).__name__}: {error}")
                report(f"{case.name:<52} FAILED: {error}")
            else:
                rows.append(row)
                report(_line(row, timings))
            if device.type == "cuda":
                torch.cuda.empty_cache()  # the next case's tensors start on fresh, aligned blocks
    finally:
        torch.backends.cudnn.benchmark = benchmark
        if any(case.part is not None for case in suite.cases):
            suite.release()
            torch._dynamo.reset()
            gc.collect()  # compiled modules are in cycles
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return Outcome(rows, failures)


def document(suite: str, rows: list[Row], ceilings: Ceilings, gpu: str, sources: str) -> Document:
    """The document that is written to the suite's file.

    Args:
        suite: its name.
        rows: its cases.
        ceilings: measured in the same run.
        gpu: its name, or "cpu".
        sources: the `source_hash` of the tree that ran.
    """
    return {
        "suite": suite,
        "gpu": gpu,
        "torch": torch.__version__,
        "cuda": (None if gpu == "cpu" else torch.version.cuda) or "none",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "source_hash": sources,
        "copy_tbps": float(f"{ceilings.copy_tbps:.4g}"),
        "matmul_tflops": float(f"{ceilings.matmul_tflops:.4g}"),
        "cases": rows,
    }
