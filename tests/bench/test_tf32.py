"""Dense convolutions in float32: torch's TF32 setting around a case, its floor and its tolerance."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType

import pytest
import torch

from bench_documents import CPU, FEW, ScriptedClock, rows_of
from common import ROOT
from sluice import bench
from sluice.bench import cli
from sluice.bench.check import TOLERANCES, WrongResultError, check
from sluice.bench.runner import _products_tflops, run_case, run_suite
from sluice.bench.schema import _CHOICES

pytestmark = pytest.mark.no_gpu
DENSE_SUITES = ("conv1d_dense", "conv_transpose1d", "random", "codecs")
WHAT_RUNS = ["make", "ours", "write", "reference", "torch", "measure"]


def allowed() -> bool:
    return torch.backends.cudnn.allow_tf32


def module_of(suite: str) -> ModuleType:
    bench.load_suite(ROOT, suite)
    return sys.modules[f"bench_{suite}"]


def small_case(dtype: str) -> bench.Case:
    case: bench.Case = module_of("conv1d_dense").dense_case((2, 6, 6, 40, 3, 1, 1), dtype, "cf", "identity")
    return case


def with_error(dtype: str, error: float, **plan: object) -> tuple[bench.Case, bench.Workload]:
    """A case whose result differs by the relative error, and `plan` as a part of its plan."""
    case = small_case(dtype)
    right = case.make(CPU)
    result = right.ours() * (1 + error)
    return case, dataclasses.replace(
        right,
        ours=lambda: result,
        write=lambda out: out.copy_(result),
        plan=dataclasses.replace(right.plan, **plan),
    )


class RecordingClock(ScriptedClock):
    """Notes torch's setting whenever it measures."""

    def __init__(self, seen: list[tuple[str, bool]]) -> None:
        super().__init__(2.0)
        self._seen = seen

    def measure(self, call, samples):
        self._seen.append(("measure", allowed()))
        return super().measure(call, samples)


def recording(case: bench.Case, seen: list[tuple[str, bool]]) -> bench.Case:
    """The case, which notes torch's setting whenever something of it runs."""

    def noting(name, call):
        def noted(*args):
            seen.append((name, allowed()))
            return call(*args)

        return noted

    def make(device: torch.device) -> bench.Workload:
        made = case.make(device)
        return dataclasses.replace(
            made,
            **{name: noting(name, getattr(made, name)) for name in ("ours", "write", "reference")},
            peers={"torch": noting("torch", made.peers["torch"])},
        )

    return dataclasses.replace(case, make=noting("make", make))


def test_every_list_of_labels_is_the_same() -> None:
    assert _CHOICES["dtype"] == bench.DTYPES.keys() == TOLERANCES.keys()
    assert bench.ALLOWS_TF32.keys() == {label for label, dtype in bench.DTYPES.items() if dtype == torch.float32}


@pytest.mark.parametrize("name", cli.suite_names(ROOT))
def test_suites_of_dense_convolutions_set_tf32_and_others_leave_it(name: str) -> None:
    for case in bench.load_suite(ROOT, name).cases:
        if name not in DENSE_SUITES:
            assert case.allows_tf32 is None
        assert (case.params["dtype"] == "tf32") == (case.allows_tf32 is True)
        assert case.allows_tf32 is None or case.allows_tf32 == bench.ALLOWS_TF32[case.params["dtype"]]


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(("dtype", "within"), [("tf32", True), ("fp32", False), ("fp16", None)])
def test_the_setting_holds_for_the_whole_case(
    dtype: str, within: bool | None, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", before)
    seen: list[tuple[str, bool]] = []
    run_case(recording(small_case(dtype), seen), CPU, RecordingClock(seen), FEW, lambda line: None)
    assert {name for name, _ in seen} == set(WHAT_RUNS)
    assert {setting for _, setting in seen} == {before if within is None else within}
    assert allowed() == before


@pytest.mark.parametrize("before", [False, True])
def test_the_setting_is_restored_after_an_error(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> bench.Workload:
        raise MemoryError(f"no room, TF32 {allowed()}")

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", before)
    cases = [dataclasses.replace(small_case(dtype), make=fail) for dtype in ("tf32", "fp32")]
    outcome = run_suite(bench.Suite("conv1d_dense", cases), CPU, ScriptedClock(1.0), FEW, lambda line: None)
    assert [line.rpartition(" ")[2] for line in outcome.failures] == ["True", "False"]
    assert allowed() == before


def test_the_rate_of_products_is_that_of_the_precision() -> None:
    gpu = torch.device("cuda")
    rates = {dtype: _products_tflops(small_case(dtype), gpu, 780.0) for dtype in bench.DTYPES}
    assert rates == {"bf16": 780.0, "fp16": 780.0, "tf32": 390.0, "fp32": 130.0}
    defaults = dataclasses.replace(small_case("fp32"), allows_tf32=None)  # suite `models`: torch allows TF32
    assert _products_tflops(defaults, gpu, 780.0) == 390.0
    assert {_products_tflops(small_case(dtype), CPU, 780.0) for dtype in bench.DTYPES} == {780.0}


@pytest.mark.parametrize(
    ("dtype", "plan", "right", "wrong"),
    [
        ("tf32", {}, 1e-3, 3e-3),
        ("fp32", {"schedule": "bulk"}, 5e-7, 3e-6),
        ("fp32", {"schedule": "aten"}, 1e-5, 1e-4),
    ],
)
def test_an_error_may_be_what_the_precision_has(dtype: str, plan: dict[str, str], right: float, wrong: float) -> None:
    check(*with_error(dtype, right, **plan))
    with pytest.raises(WrongResultError, match="relative L2 error"):
        check(*with_error(dtype, wrong, **plan))


def test_rows_of_both_suites() -> None:
    dense, transposed = module_of("conv1d_dense"), module_of("conv_transpose1d")
    shape, layer = dense.Shape(2, 8, 8, 40, 3, 1, 1), transposed.Layer(2, 8, 8, 20, 4, 2, 1)
    both = [(dtype, layout) for dtype in ("tf32", "fp32") for layout in ("cf", "cl")]
    chains = ("identity", "gelu", "leaky_relu, residual")
    cases = [dense.dense_case(shape, *labels, fn) for labels in both for fn in chains]
    rows = rows_of("conv1d_dense", cases)
    assert rows[0]["name"] == "2x8x40 to 8 K=3 d=1 tf32 cf identity"
    assert {row["params"]["dtype"] for row in rows} == {"tf32", "fp32"}
    cases = [transposed.case_of(layer, *labels, fn) for labels in both for fn in ("identity", "leaky_relu")]
    assert [row["params"]["dtype"] for row in rows_of("conv_transpose1d", cases)] == ["tf32"] * 4 + ["fp32"] * 4


def test_the_search_of_torch_compile_sees_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("conv1d_dense")
    shape = module.Shape(2, 6, 6, 40, 3, 1, 1)
    monkeypatch.setattr(module, "SEARCHED", [shape])
    peers = {dtype: module.dense_case(shape, dtype, "cf", "gelu").make(CPU).peers for dtype in ("tf32", "fp32")}
    assert "torch_compile" in peers["tf32"]
    assert "torch_compile" not in peers["fp32"]


def test_the_reported_rows_are_there() -> None:
    dense, transposed = module_of("conv1d_dense"), module_of("conv_transpose1d")
    shapes = (dense.WHISPER, dense.STRIDED[0], *dense.REPORTED)
    labels = [(dtype, layout) for dtype in ("fp16", "tf32", "fp32") for layout in ("cf", "cl")]
    wanted = {dense.dense_case(shape, *label, "identity").name for shape in shapes for label in labels}
    assert wanted <= {case.name for case in dense.SUITE.cases}
    wanted = {transposed.case_of(transposed.REPORTED, *label, "identity").name for label in labels}
    assert wanted <= {case.name for case in transposed.SUITE.cases}
