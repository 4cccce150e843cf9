"""compat.causal_conv1d under layers of transformers at real sizes, in half types, and in compiled decoding loops.

As a program, `test_gpu_layers.py <what> <device> <file>` writes what one process has found; a process has one state,
because transformers chooses a model's functions when it imports the model's module (benchmarks/layer_cases.py).
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import pathlib
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from common import ROOT, relative_error
from marks import ON_GPU

pytest.importorskip("transformers")
pytestmark = ON_GPU

KINDS, HALF = ("mamba2", "qwen3_next"), ("fp16", "bf16")
# Sequences, and tokens of each prompt: not whole chunks of the scans; one scan has small chunks for small memory.
BATCH, PROMPT, CHUNK, NEW = 2, 300, 64, 8
STEPS, WARM_UP = 256, 3  # steps of the compiled loop; CUDA graphs are recorded at the second step
WRONG = 0.5  # the error that taps in another order exceed: they give 0.8 and more

Outputs = dict[str, torch.Tensor]


# --- the program ------------------------------------------------------------------------------------------------------
def subjects(device: str, new: int, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    from layer_cases import Case, make

    chosen = itertools.product(kinds, HALF)
    return {f"{k} {d}": make(Case(k, d, BATCH, PROMPT, new=new, chunk_size=CHUNK), device) for k, d in chosen}


def of_before(device: str) -> dict[str, Any]:
    found = subjects(device, NEW)
    return {name: (one.counted_outputs("before"), one.reference()) for name, one in found.items()}


def of_after(device: str) -> dict[str, Any]:
    found = subjects(device, NEW)
    return {name: (one.counted_outputs("after"), *(wrong(one, op) for op in WRONG_OPS)) for name, one in found.items()}


WRONG_OPS = {"convolve": 1, "update": 2}  # names in causal_conv1d_interface, and where the weight is in their arguments


def wrong(subject: Any, op: str) -> Outputs:
    """The layer's outputs if the op's taps are in a wrong order."""
    from sluice.compat.causal_conv1d import causal_conv1d_interface

    right, place = getattr(causal_conv1d_interface, op), WRONG_OPS[op]

    def other_taps(*args: Any, **options: Any) -> Any:
        return right(*args[:place], args[place].roll(1, dims=1), *args[place + 1 :], **options)

    setattr(causal_conv1d_interface, op, other_taps)
    try:
        return subject.outputs()
    finally:
        setattr(causal_conv1d_interface, op, right)


class Replays:
    """Counts the replays of CUDA graphs since its construction."""

    def __init__(self) -> None:
        self.count, replay = 0, torch.cuda.CUDAGraph.replay

        def counting(graph: torch.cuda.CUDAGraph) -> None:
            self.count += 1
            replay(graph)

        torch.cuda.CUDAGraph.replay = counting


def compiled_loop(subject: Any) -> dict[str, Any]:
    """The steps under `torch.compile(mode="reduce-overhead")`: their outputs, and what the compiler has counted."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    counters.clear()
    cache = subject.cache()
    first = subject.prefill(cache)

    @torch.compile(mode="reduce-overhead", fullgraph=True)
    def step(token: torch.Tensor) -> torch.Tensor:
        return subject.step(cache, token)

    def steps(tokens: torch.Tensor) -> None:
        for token in tokens:
            torch.compiler.cudagraph_mark_step_begin()
            found.append(step(token).clone())  # the next replay overwrites it

    found: list[torch.Tensor] = []
    _, code = run_and_get_code(steps, subject.tokens[:1])
    steps(subject.tokens[1:WARM_UP])
    replays = Replays()
    with torch.compiler.set_stance("fail_on_recompile"):
        steps(subject.tokens[WARM_UP:])
        replayed = replays.count
        refusal = ""
        try:  # a smaller batch is a recompile, which must not go unnoticed
            step(subject.tokens[0][:1])
        except RuntimeError as error:
            refusal = str(error)
    state = cache.layers[0].conv_states[0]
    return {
        "outputs": {"prefill": first.cpu(), "decode": torch.cat(found, dim=1).cpu(), "state": state.cpu()},
        "graphs": counters["stats"]["unique_graphs"],
        "skips": counters["inductor"]["cudagraph_skips"],
        "replays": replayed,
        "refusal": refusal,
        "code": "\n".join(code),
    }


def tell_compiling_from_exporting() -> None:
    """torch 2.11 reports code under torch.compile as exported, for which transformers uses its torch code."""
    from transformers.integrations import hub_kernels

    hub_kernels.is_torchdynamo_exporting = lambda: False


def of_loop(device: str, kind: str) -> dict[str, Any]:
    """For each dtype: the compiled loop, and the eager one with its reference."""
    tell_compiling_from_exporting()
    found = subjects(device, STEPS, (kind,))
    return {name: (compiled_loop(one), one.counted_outputs("after"), one.reference()) for name, one in found.items()}


def program(what: str, device: str, path: str) -> None:
    from layer_cases import enter

    torch.backends.cudnn.allow_tf32 = False
    enter("before" if what == "before" else "after")
    with torch.no_grad():
        found = {"before": of_before, "after": of_after}[what](device) if what not in KINDS else of_loop(device, what)
    torch.save(found, path)


# --- the tests --------------------------------------------------------------------------------------------------------
@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("layer_cases")


def results(cases: ModuleType, device: str, folder: pathlib.Path, *whats: str) -> list[dict[str, Any]]:
    """The findings of concurrent processes."""
    paths = [str(ROOT / "tests" / "helpers"), str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # With inductor's caches there would be no code to look into the second time.
    more = {"PYTHONPATH": os.pathsep.join(paths), "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    start = functools.partial(subprocess.Popen, env=cases.environment(**more), stderr=subprocess.PIPE, text=True)
    processes = [start([sys.executable, __file__, what, device, str(folder / what)]) for what in whats]
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(whats), "\n".join(said)
    return [torch.load(folder / what) for what in whats]


def test_layers_have_the_outputs_of_torch_code(cuda: str, tmp_path: pathlib.Path, cases: ModuleType) -> None:
    """The ops are called once for the prompt and once per token, and a wrong op would be detected."""
    before, after = results(cases, cuda, tmp_path, "before", "after")
    assert list(before) == list(after) == [f"{kind} {dtype}" for kind in KINDS for dtype in HALF]
    for name, (torchs, reference) in before.items():
        ours, wrong_prefill, wrong_decode = after[name]
        assert list(reference) == ["prefill", "decode", "state"]
        cases.compare(name, torchs, ours, reference)
        assert relative_error(wrong_prefill["prefill"], reference["prefill"]) > WRONG, name
        assert torch.equal(wrong_decode["prefill"], ours["prefill"]), name
        assert relative_error(wrong_decode["decode"], reference["decode"]) > WRONG, name


def test_decoding_loops_of_256_tokens_never_recompile(cuda: str, tmp_path: pathlib.Path, cases: ModuleType) -> None:
    for kind, found in zip(KINDS, results(cases, cuda, tmp_path, *KINDS), strict=True):
        assert list(found) == [f"{kind} {dtype}" for dtype in HALF]
        for name, (compiled, eager, reference) in found.items():
            assert reference["decode"].shape[1] == STEPS
            cases.compare(name, eager, compiled["outputs"], reference)
            assert "sluice.causal_conv1d_update" in compiled["code"], name
            assert compiled["graphs"] == 1, name
            assert "Detected recompile" in compiled["refusal"], name
            assert compiled["skips"] == 0, name
            assert compiled["replays"] >= STEPS - WARM_UP, name


if __name__ == "__main__":
    program(*sys.argv[1:])
