"""benchmarks/record_layers.py on the CPU: the program with tiny layers, and what it refuses; no durations."""

from __future__ import annotations

import importlib
import itertools
import json
import pathlib
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from common import ROOT, parts_of_positions
from forked import Ran, run_forked
from sluice.bench.check import WrongResultError
from sluice.compat.causal_conv1d import causal_conv1d_fn, causal_conv1d_update

pytestmark = pytest.mark.no_gpu
HEAD = ["date", "gpu", "torch", "cuda", "transformers", "source_hash", "scans", "small", "numbers", "cases"]
LAYERS, TYPES, STATES = ("Mamba2Mixer", "Qwen3NextGatedDeltaNet"), ("fp16", "bf16"), ("before", "after")
PROMPTS = [("prefill", 1, 24), ("prefill", 2, 16), ("decode", 3, 1)]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("record_layers")


@pytest.fixture
def cases(recorder: ModuleType) -> ModuleType:
    return importlib.import_module("layer_cases")


# --- the program ------------------------------------------------------------------------------------------------------
def check_row(row: dict[str, Any], numbers: dict[str, str]) -> None:
    outputs = ["prefill", "state"] if row["what"] == "prefill" else ["prefill", "decode", "state"]
    for one in (row[state] for state in STATES):
        assert one.keys() == numbers.keys()
        assert all(one[name] > 0 for name in numbers if name != "error")
        # Both are rounded, and a share of tiny layers is anything above 0.
        assert one["conv_share"] == pytest.approx(one["conv_us"] / one["layer_us"], rel=0.02, abs=1e-4)
        assert list(one["error"]) == outputs
    for name in outputs:
        before, after = (row[state]["error"][name] for state in STATES)
        assert 0 < before < (2e-3 if row["dtype"] == "fp16" else 2e-2)
        assert 0 < after <= 3 * before + 1e-6


def test_a_recording_of_the_cpu(
    recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process of each state is a fork of what both import."""
    pytest.importorskip("transformers")
    path = tmp_path / "new" / "layers.json"
    started: list[list[str]] = []

    def start(command: list[str], env: dict[str, str]) -> Ran:
        started.append(command)
        ran = run_forked(pathlib.Path(command[1]), *command[2:], **{**env, "CUDA_VISIBLE_DEVICES": ""})
        assert ran.returncode == 0, ran.stderr
        return ran

    monkeypatch.setattr(recorder.subprocess, "run", start)
    monkeypatch.setattr(sys, "argv", ["record_layers.py", "--device", "cpu", "--small", "--output", str(path)])
    recorder.main()
    out = capsys.readouterr().out
    program = str(ROOT / "benchmarks/record_layers.py")
    assert [command[:2] for command in started] == [[sys.executable, program]] * 2
    recording = json.loads(path.read_text())
    assert list(recording) == HEAD
    assert [recording[name] for name in ("gpu", "cuda", "small")] == ["cpu", torch.version.cuda or "none", True]
    rows = recording["cases"]
    found = [tuple(row[name] for name in ("layer", "dtype", "what", "batch", "tokens")) for row in rows]
    assert found == [(*names, *prompt) for *names, prompt in itertools.product(LAYERS, TYPES, PROMPTS)]
    for row in rows:
        check_row(row, recording["numbers"])
        assert f"{row['layer']} {row['what']} {row['batch']} x {row['tokens']} {row['dtype']}: layer " in out


def test_arguments(recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (["--device", "tpu"], "--device must be CUDA devices or the CPU, got 'tpu'"),
        (["--device", "cpu", "--small"], "--small must come with --output, got none"),
    ):
        monkeypatch.setattr(sys, "argv", ["record_layers.py", *options])
        with pytest.raises(SystemExit):
            recorder.main()
        assert message in capsys.readouterr().err


# --- what is no recording ---------------------------------------------------------------------------------------------
def found_of(error: float) -> dict[str, Any]:
    """Findings of both states, in which `after` is off by `error`."""
    right = torch.linspace(1, 2, 50)
    outputs = {"before": right * (1 + 1e-3), "after": right * (1 + error)}
    found: dict[str, Any] = {
        state: {"outputs": {"prefill": value}, "channels": 8, "times": {"layer_us": 2.0, "conv_us": 1.0}}
        for state, value in outputs.items()
    }
    found["before"]["reference"] = {"prefill": right}
    return found


def test_errors_of_both_states(recorder: ModuleType) -> None:
    case = next(recorder.cases(small=True))
    row = recorder.row_of(case, found_of(2.9e-3))
    assert [row[state]["error"]["prefill"] for state in STATES] == pytest.approx([1e-3, 2.9e-3], rel=1e-2)
    assert (row["channels"], row["after"]["conv_us"]) == (8, 1.0)
    for error in (3.1e-3, -1.0, float("nan")):
        with pytest.raises(WrongResultError, match=r"fp16, 1 x 24: prefill: after, the error must be at most 0.003"):
            recorder.row_of(case, found_of(error))
    unusable = found_of(0)
    unusable["before"]["outputs"]["prefill"] *= 1.1
    with pytest.raises(WrongResultError, match=r"prefill: before, the error must be at most 0.05, got 0.1"):
        recorder.row_of(case, unusable)


def test_a_wrong_result_is_not_written(
    recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / "layers.json"
    case = next(recorder.cases(small=True))
    monkeypatch.setattr(recorder, "in_both_states", lambda *_: iter([(case, found_of(1e-2))]))
    monkeypatch.setattr(recorder, "sentence", lambda row: "")
    monkeypatch.setattr(sys, "argv", ["record_layers.py", "--device", "cpu", "--small", "--output", str(path)])
    with pytest.raises(SystemExit, match=r"record_layers: Mamba2Mixer fp16, 1 x 24: prefill: after, the error must be"):
        recorder.main()
    assert not path.exists()
    monkeypatch.setattr(recorder, "in_both_states", lambda *_: iter([(case, found_of(0))]))
    recorder.main()
    assert len(json.loads(path.read_text())["cases"]) == 1


def test_a_failed_process_is_not_written(
    recorder: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(recorder, "__file__", str(tmp_path / "missing.py"))
    with pytest.raises(SystemExit, match="the process of state before has failed, nothing is written"):
        next(recorder.in_both_states(torch.device("cpu"), True, tmp_path))


def test_a_case_without_memory_is_left_out(recorder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(recorder.cases(small=True))

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80 GiB. GPU 0 has less")

    monkeypatch.setattr(recorder, "make", full)
    left_out = recorder.record_case(case, "after", torch.device("cpu"))
    row = recorder.row_of(case, found_of(0) | {"after": left_out})
    assert row["left_out"] == "after: CUDA out of memory"
    assert row.keys().isdisjoint(STATES)
    assert recorder.sentence(row) == "Mamba2Mixer prefill 1 x 24 fp16: left out, after: CUDA out of memory"


def test_the_package_itself_is_refused(cases: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    for state in STATES:
        with pytest.raises(RuntimeError, match="causal_conv1d must not be installed"):
            cases.enter(state)


# --- the calls within a layer -----------------------------------------------------------------------------------------
def test_a_watched_call_is_repeated_on_what_it_had(cases: ModuleType) -> None:
    module = ModuleType("layer")
    seen: list[tuple[torch.Tensor, float]] = []

    def convolve(x: torch.Tensor, *, scale: float) -> torch.Tensor:
        seen.append((x, scale))
        x.mul_(scale)
        return x.clone()

    module.convolve = convolve
    x = parts_of_positions(torch.randn(2, 3, 4))
    before = x.clone()
    with cases.watched(module, "convolve") as calls:
        result = module.convolve(x, scale=2.0)
    assert module.convolve is convolve
    x.fill_(0)
    (repeat,) = calls
    assert torch.equal(repeat(), result)
    assert torch.equal(repeat(), 4 * before)  # on the copies of the call's arguments, which it changes
    copied = seen[1][0]
    assert copied.stride() == x.stride()
    assert copied.storage_offset() == x.storage_offset()
    assert copied.untyped_storage().nbytes() == x.untyped_storage().nbytes()
    assert seen[0][0] is x


def test_ops_are_counted_by_what_they_do(cases: ModuleType) -> None:
    x, weight = torch.randn(1, 3, 8), torch.randn(3, 4)
    with cases.OpCalls() as calls:
        causal_conv1d_fn(x, weight)
        for token in range(2):
            causal_conv1d_update(x[..., token], x[..., :3].clone(), weight)
        torch.nn.functional.conv1d(x, weight[:, None], groups=3)
    assert (calls.prefill, calls.decode) == (1, 2)
