"""Records layers of transformers before and after `sluice.compat.causal_conv1d.install()`: times, shares and errors.

    python benchmarks/record_layers.py [--device cuda:0|cpu] [--small] [--output FILE]

A Mamba2 mixer and a Qwen3-Next gated delta net, float16 and bfloat16: prompts of one sequence and of several, and the
decoding of 64 sequences. Each state has its own process. Results are compared with float64: if an error of `after` is
over three times that of `before`, the program fails and writes nothing. A case that does not fit into the GPU's memory
is listed as left out. `NUMBERS` explains each number, and so does the file.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import importlib.util
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from layer_cases import KINDS, STATES, Case, Subject, compare, enter, environment, make, parts
from sluice.bench import GraphClock, HostClock, checkout_root, source_hash
from sluice.bench.check import WrongResultError
from sluice.bench.results import gpu_slug
from sluice.bench.timing import Clock, ColdClock, Effort, interleave
from sluice.stream.arguments import parse_device
from sluice.stream.device.memory import has_cuda

NUMBERS = {
    "layer_us": "the layer's forward. Prefill: by CUDA events, each call with a cache of its own and an L2 of other "
    "data, the host ahead of the GPU. Decode: one token of each sequence, warm, a step among those of a CUDA graph",
    "conv_us": "by the same clock, the layer's call of its convolution alone, on copies of its inputs with their "
    "strides: convolution, bias, SiLU, every copy that it makes, and in decode its state",
    "scan_us": "by the same clock, the layer's call of its scan (the state-space or the delta rule) alone",
    "conv_share": "conv_us / layer_us",
    "loop_us": "by the host's clock, one of many such calls in a Python loop, host and GPU together",
    "error": "relative L2 error against transformers' code in float64 (its scan and norm in float32) on the same "
    "weights and inputs: of the prompt's result, of the new tokens' results, of the convolution's state behind them",
}
_EFFORT = Effort(rounds=3, samples=5, warm_up=2)
_SMALL_EFFORT = Effort(rounds=3, samples=1, warm_up=1)
_GRAPH_CALLS = 20  # a step of 64 sequences takes a millisecond, so a graph's launch is negligible beside 20 of them
_LOOPS = 5


def cases(small: bool) -> Iterator[Case]:
    """Prompts of one sequence and of several; then decoding, whose short prompts need no large chunks."""
    prompts = [(1, 24), (2, 16)] if small else [(1, 4096), (4, 1024), (4, 2048)]
    for kind, dtype in itertools.product(KINDS, ("fp16", "bf16")):
        for batch, tokens in prompts:
            yield Case(kind, dtype, batch, tokens, small=small)
        yield Case(kind, dtype, 3 if small else 64, 16, new=8, small=small, chunk_size=16)


# --- the process of a state -------------------------------------------------------------------------------------------
class OneByOne:
    """Takes each sample separately: the driver queues about a thousand kernels, and a prefill has hundreds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def measure(self, call: Callable[[], object], samples: int) -> list[float]:
        return [us for _ in range(samples) for us in self._clock.measure(call, 1)]


def clock_of(case: Case, place: torch.device) -> Clock:
    if place.type == "cpu":
        return HostClock(place, calls=None)
    return GraphClock(place, _GRAPH_CALLS) if case.new else OneByOne(ColdClock(place))


def loop_us(call: Callable[[], object], place: torch.device, loop_seconds: float) -> float:
    """The median over loops of the time of one call, including its queued work."""

    def seconds(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        return time.perf_counter() - begin

    seconds(1)
    calls = max(1, int(loop_seconds / seconds(1)))
    return statistics.median(1e6 * seconds(calls) / calls for _ in range(_LOOPS))


def times(subject: Subject, place: torch.device) -> dict[str, float]:
    """Microseconds, and the convolution's share."""
    case = subject.case
    calls: dict[str, Callable[[], Any]]
    if case.new:
        cache = subject.cache()
        subject.prefill(cache)
        calls = {"layer": functools.partial(subject.step, cache, subject.tokens[0]), **parts(subject, cache)}
    else:
        calls = {"layer": subject.prefill, **parts(subject)}
    timed = interleave(clock_of(case, place), calls, _SMALL_EFFORT if case.small else _EFFORT)
    found = {f"{name}_us": round(timing.median_us, 2) for name, timing in timed.items()}
    found["conv_share"] = round(timed["conv"].median_us / timed["layer"].median_us, 4)
    return found | {"loop_us": round(loop_us(calls["layer"], place, 0.01 if case.small else 0.1), 2)}


def record_case(case: Case, state: str, place: torch.device) -> dict[str, Any]:
    """Outputs and times, with the reference where the state is transformers' own; or why the case is left out."""
    try:
        subject = make(case, place)
        found: dict[str, Any] = {"outputs": subject.counted_outputs(state)}
        if state == "before":
            found["reference"] = subject.reference()
        if place.type == "cuda":
            torch.cuda.empty_cache()
        return found | {"channels": subject.channels, "times": times(subject, place)}
    except torch.OutOfMemoryError as error:
        return {"left_out": str(error).split(". ")[0]}


def record_state(state: str, place: torch.device, small: bool, folder: Path) -> None:
    enter(state)
    with torch.no_grad():
        for number, case in enumerate(cases(small)):
            torch.save(record_case(case, state, place), folder / f"{number}.{state}.pt")
            if place.type == "cuda":
                torch.cuda.empty_cache()


# --- both states ------------------------------------------------------------------------------------------------------
def in_both_states(place: torch.device, small: bool, folder: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    """The findings of the two processes, for each case.

    The scan of a prompt allocates half of the GPU's memory at once, so smaller tensors must not fragment it.
    """
    memory = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if place.type == "cuda" else {}
    for state in STATES:
        command = [sys.executable, __file__, "--device", str(place), "--state", state, "--output", str(folder)]
        command += ["--small"] if small else []
        ran = subprocess.run(command, env=environment(**memory))
        if ran.returncode != 0:
            sys.exit(f"record_layers: the process of state {state} has failed, nothing is written")
    for number, case in enumerate(cases(small)):
        yield case, {state: torch.load(folder / f"{number}.{state}.pt") for state in STATES}


def row_of(case: Case, found: dict[str, Any]) -> dict[str, Any]:
    """A case of the file.

    Raises:
        WrongResultError: as in `layer_cases.compare`.
    """
    row: dict[str, Any] = {"layer": KINDS[case.kind].name, "what": "decode" if case.new else "prefill"}
    row |= {"dtype": case.dtype, "batch": case.batch, "tokens": 1 if case.new else case.tokens}
    if left_out := [f"{state}: {one['left_out']}" for state, one in found.items() if "left_out" in one]:
        return row | {"left_out": "; ".join(left_out)}
    before, after = (found[state] for state in STATES)
    errors = compare(case.label, before["outputs"], after["outputs"], before["reference"])
    rounded = {state: {name: float(f"{value:.3g}") for name, value in errors[state].items()} for state in STATES}
    row["channels"] = before["channels"]
    return row | {state: {**found[state]["times"], "error": rounded[state]} for state in STATES}


def sentence(row: dict[str, Any]) -> str:
    head = f"{row['layer']} {row['what']} {row['batch']} x {row['tokens']} {row['dtype']}"
    if "left_out" in row:
        return f"{head}: left out, {row['left_out']}"
    before, after = row["before"], row["after"]
    us = ", ".join(f"{part} {before[f'{part}_us']} -> {after[f'{part}_us']} us" for part in ("layer", "conv", "scan"))
    return f"{head}: {us}, share {100 * before['conv_share']:.2f} -> {100 * after['conv_share']:.2f} %"


def head_of(place: torch.device, small: bool) -> dict[str, Any]:
    head = {"date": datetime.datetime.now(datetime.timezone.utc).date().isoformat()}
    head |= {"gpu": torch.cuda.get_device_name(place) if place.type == "cuda" else "cpu"}
    head |= {"torch": torch.__version__, "cuda": torch.version.cuda or "none"}
    head |= {"transformers": importlib.metadata.version("transformers"), "source_hash": source_hash(checkout_root())}
    scans = [name for name in ("mamba_ssm", "fla") if importlib.util.find_spec(name) is not None]
    return head | {"scans": ", ".join(scans) or "torch code", "small": small, "numbers": NUMBERS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0" if has_cuda() else "cpu", help="%(default)s")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the program; needs --output")
    parser.add_argument("--output", type=Path, help="instead of benchmarks/recordings/<gpu>/layers.json")
    parser.add_argument("--state", choices=STATES, help=argparse.SUPPRESS)  # this process is one of the two
    given = parser.parse_args()
    try:
        place = parse_device("record_layers", given.device, name="--device")
    except (ValueError, RuntimeError) as error:
        parser.error(str(error))
    if given.small and given.output is None:
        parser.error("--small must come with --output, got none")
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if given.state is not None:
        record_state(given.state, place, given.small, given.output)
        return
    head, rows = head_of(place, given.small), []
    with tempfile.TemporaryDirectory() as folder:
        for case, found in in_both_states(place, given.small, Path(folder)):
            try:
                rows.append(row_of(case, found))
            except WrongResultError as error:
                sys.exit(f"record_layers: {error}")
            print(sentence(rows[-1]))
    path = given.output or checkout_root() / "benchmarks" / "recordings" / gpu_slug(head["gpu"]) / "layers.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n    ".join(json.dumps(row, allow_nan=False) for row in rows)
    path.write_text(json.dumps(head, indent=2).removesuffix("\n}") + f',\n  "cases": [\n    {lines}\n  ]\n}}\n')
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
