"""`python -m sluice bench`: finds the suites of the checkout, runs them, writes the results of each part."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import _library
from .ceilings import Ceilings, measure_ceilings
from .results import write
from .runner import document, run_suite
from .source_hash import checkout_root, source_hash
from .suite import Suite
from .timing import FULL, QUICK, ColdClock, HostClock


class BenchError(Exception):
    """The run cannot start; the text says why."""


def suite_names(root: Path) -> list[str]:
    """The suites of a checkout: `benchmarks/bench_<name>.py`."""
    return sorted(path.stem.removeprefix("bench_") for path in (root / "benchmarks").glob("bench_*.py"))


def load_suite(root: Path, name: str) -> Suite:
    """`SUITE` of `benchmarks/bench_<name>.py`.

    Raises:
        BenchError: there is no such suite, or the file defines none.
    """
    known = suite_names(root)
    if name not in known:
        raise BenchError(f"unknown suite {name!r}; {root / 'benchmarks'} has: {', '.join(known) or 'none'}")
    path = root / "benchmarks" / f"bench_{name}.py"
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the modules of a large suite are in the same folder
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses and torch.compile look a function's module up there
    spec.loader.exec_module(module)
    suite = getattr(module, "SUITE", None)
    if not isinstance(suite, Suite) or suite.name != name:
        raise BenchError(f"{path} must define SUITE = Suite({name!r}, ...), got {suite!r}")
    return suite


def _device(kind: str) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        seen = f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees none"
        raise BenchError(f"needs a CUDA device, and {seen}; --cpu runs what a suite has for the CPU")
    if _library.cuda_unavailable_reason is not None:
        raise BenchError(f"needs sluice's CUDA kernels: {_library.cuda_unavailable_reason}")
    return torch.device("cuda", torch.cuda.current_device())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sluice bench",
        description="Times sluice beside its peers and its floor, on a GPU; with --cpu, and suite `cpu`, on the CPU.",
    )
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="suite[:part]",
        help="names of benchmarks/bench_<suite>.py, or of parts that --list shows; all if none",
    )
    parser.add_argument("--quick", action="store_true", help="few samples, no compiled peers; writes nothing")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name contains TEXT; writes nothing")
    parser.add_argument("--cpu", action="store_true", help="the cases that the suites have for the CPU; needs no GPU")
    parser.add_argument(
        "--list", action="store_true", help="print the suites, or the cases of those named, and stop; needs no GPU"
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="begin no suite and no part later than this after the start; those left out are printed as arguments",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="instead of benchmarks/results of the checkout")
    return parser


def _argument(suite: str, part: str | None) -> str:
    """How a part is named on the command line."""
    return suite if part is None else f"{suite}:{part}"


def _loaded(root: Path, arguments: Sequence[str], cpu: bool = False) -> list[Suite]:
    """Each suite once, with all parts or the named parts, in the order of the arguments; without arguments all."""
    named: dict[str, list[str | None]] = {}
    for argument in arguments or suite_names(root):
        name, colon, part = argument.partition(":")
        named.setdefault(name, []).append(part if colon else None)
    suites = {name: load_suite(root, name) for name in named}
    if cpu:
        suites = {name: suite.on_cpu() for name, suite in suites.items()}
        empty = [name for name, suite in suites.items() if not suite.cases]
        if arguments and empty:
            raise BenchError(f"suite {empty[0]!r} has no cases for the CPU")
        suites = {name: suite for name, suite in suites.items() if suite.cases}
    return [_with_parts(suite, named[name]) for name, suite in suites.items()]


def _with_parts(suite: Suite, names: Sequence[str | None]) -> Suite:
    if None in names:
        return suite
    known = suite.parts()
    for name in names:
        if name not in known:
            parts = ", ".join(part for part in known if part is not None) or "none"
            raise BenchError(f"unknown part {name!r} of suite {suite.name!r}; it has: {parts}")
    return dataclasses.replace(suite, cases=[case for name in dict.fromkeys(names) for case in known[name].cases])


def _selected(suite: Suite, only: str | None) -> Suite:
    if only is None:
        return suite
    return dataclasses.replace(suite, cases=[case for case in suite.cases if only in case.name])


def _listed(suites: Sequence[Suite], by_case: bool) -> list[str]:
    """The cases where some were asked for; of everything, which is pages, a line a suite."""
    if by_case:
        return [f"{_argument(suite.name, case.part)}: {case.name}" for suite in suites for case in suite.cases]
    widest = max(len(suite.name) for suite in suites)
    lines = [
        f"{suite.name:{widest}}  {len(suite.cases):4} cases"
        + ("" if None in suite.parts() else f" in {len(suite.parts())} parts")
        for suite in suites
    ]
    return [*lines, "Name a suite, or some text of a case's name by --only, to see the cases."]


def _ceilings(kind: str, device: torch.device) -> Ceilings:
    if kind == "cpu":
        print(f"CPU, {torch.get_num_threads()} threads, {_library.instruction_set()}")
        ceilings = measure_ceilings(HostClock(device, calls=None), device)
        print(f"copy {1000 * ceilings.copy_tbps:.1f} GB/s, fp32 matmul {1000 * ceilings.matmul_tflops:.0f} GFLOP/s")
        return ceilings
    print(torch.cuda.get_device_name(device))
    ceilings = measure_ceilings(ColdClock(device), device)
    print(f"copy {ceilings.copy_tbps:.2f} TB/s, bf16 matmul {ceilings.matmul_tflops:.0f} TFLOP/s")
    return ceilings


def _run(options: argparse.Namespace) -> int:
    begin = time.monotonic()
    try:
        root = checkout_root()
    except FileNotFoundError as error:
        raise BenchError(str(error)) from None
    suites = [_selected(suite, options.only) for suite in _loaded(root, options.suites, options.cpu)]
    if not any(suite.cases for suite in suites):
        raise BenchError(f"no case's name contains {options.only!r}")
    if options.list:
        print("\n".join(_listed(suites, by_case=bool(options.suites) or options.only is not None)))
        return 0
    failures = _measure(suites, root, options, begin)
    print(f"{time.monotonic() - begin:.0f} s")
    for failure in failures:
        print(f"sluice bench: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _measure(suites: Sequence[Suite], root: Path, options: argparse.Namespace, begin: float) -> list[str]:
    """Runs part after part and writes each as soon as it is done; returns the failures."""
    devices = {kind: _device(kind) for kind in sorted({suite.device for suite in suites})}
    effort = QUICK if options.quick else FULL
    sources = source_hash(root)
    # torch's generators start from the same number in every process; results are checked on inputs nobody has seen.
    print(f"torch {torch.__version__}, random seed {torch.seed()}")
    ceilings = {kind: _ceilings(kind, device) for kind, device in devices.items()}
    failures: list[str] = []
    left_out: list[str] = []
    for part, suite in [item for whole in suites for item in whole.parts().items()]:
        argument = _argument(suite.name, part)
        if left_out or (options.budget is not None and time.monotonic() - begin > options.budget):
            left_out.append(argument)
            continue
        device = devices[suite.device]
        tflops = ceilings[suite.device].matmul_tflops
        outcome = run_suite(suite, device, suite.clock(device), effort, matmul_tflops=tflops)
        failures += outcome.failures
        if options.quick or options.only is not None:
            continue
        if outcome.failures:
            print(f"{argument}: not written, because {len(outcome.failures)} of its cases failed")
            continue
        gpu = "cpu" if suite.device == "cpu" else torch.cuda.get_device_name(device)
        results = document(suite.name, outcome.rows, ceilings[suite.device], gpu, sources)
        path = write(options.output or root / "benchmarks" / "results", results, part)
        print(f"wrote {path}", flush=True)  # the run may be cut off later
    if left_out:
        print(f"not begun within {options.budget:g} s: {' '.join(left_out)}")
    return failures


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `python -m sluice bench` with these arguments.

    Args:
        argv: suites, parts of suites as `<suite>:<part>`, and options, without the program's name; None means the
            arguments of the process.

    Returns:
        The exit status: 0, also when `--budget` left parts out; 1 when a result is wrong or a case raised, and then
        the file of that suite, or of that part, is not written; 2 when the run cannot start.

    Raises:
        SystemExit: the arguments cannot be read, or ask for help.

    Example:
        >>> from sluice import bench
        >>> bench.main(["transform", "--list", "--only", "+3 ten ops"])
        transform: bf16 2^26+3 ten ops
        0
    """
    options = _parser().parse_args(argv)
    try:
        return _run(options)
    except BenchError as error:
        print(f"sluice bench: {error}", file=sys.stderr)
        return 2
