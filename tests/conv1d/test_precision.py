"""Precisions of dense float32 convolutions: how torch's setting is read, and how it reaches the raw ops."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import backends
from torch._subclasses.fake_tensor import FakeTensor
from torch.library import opcheck

import sluice
from planned_calls import meta
from rows import naming
from sluice import _call, _precision
from sluice.nn import convolution, repeated
from sluice.plan import H200
from tf32 import Setting, fakes, input_and_weight

pytestmark = pytest.mark.no_gpu
OPS = ("conv1d", "conv_transpose1d")


@pytest.fixture
def torchs_settings() -> Iterator[None]:
    """torch's settings as tests/conftest.py made them, before and after."""
    assert not backends.cudnn.allow_tf32
    yield
    reset()
    assert not backends.cudnn.allow_tf32


def reset() -> None:
    backends.fp32_precision = backends.cudnn.fp32_precision = "none"
    backends.cudnn.conv.fp32_precision = backends.cudnn.rnn.fp32_precision = "none"
    backends.cudnn.allow_tf32 = False


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(monkeypatch)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of the raw convolutions that run."""
    found: list[dict[str, Any]] = []

    def noting(op: Any) -> Callable[..., torch.Tensor]:
        def noted(*arguments: Any, **options: Any) -> torch.Tensor:
            found.append(options)
            result: torch.Tensor = op(*arguments, **options)
            return result

        return noted

    for name in OPS:
        monkeypatch.setitem(_call._functions, name, noting(getattr(torch.ops.sluice, name).default))
    return found


# --- reading ----------------------------------------------------------------------------------------------------------
SETTINGS = (("cudnn.conv", backends.cudnn.conv), ("cudnn", backends.cudnn), ("all", backends))


def test_the_nearest_setting_decides(torchs_settings: None) -> None:
    for values in itertools.product(("none", "ieee", "tf32"), repeat=3):
        with naming(dict(zip((name for name, _ in SETTINGS), values, strict=True))):
            for (_, place), value in zip(SETTINGS, values, strict=True):
                place.fp32_precision = value
            nearest = next((value for value in values if value != "none"), "none")
            assert _precision.settings.allows_tf32 == (nearest == "tf32")
            reset()


def test_the_old_flag_is_read(torchs_settings: None) -> None:
    for allowed in (True, False, True):
        backends.cudnn.allow_tf32 = allowed
        assert _precision.settings.allows_tf32 == allowed
    with backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert not _precision.settings.allows_tf32
    assert _precision.settings.allows_tf32


def test_both_interfaces_may_be_mixed(torchs_settings: None) -> None:
    for first, then in ((True, "ieee"), (False, "tf32")):
        backends.cudnn.allow_tf32 = first
        backends.cudnn.conv.fp32_precision = then
        with pytest.raises(RuntimeError, match="allow_tf32"):
            _ = backends.cudnn.allow_tf32
        assert _precision.settings.allows_tf32 == (then == "tf32")


# --- the functions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", OPS)
def test_float32_on_a_gpu_passes_the_setting_on(op: str, setting: Setting, passed: list[dict[str, Any]]) -> None:
    for precision in ("tf32", "ieee", "none", "bf16", "tf32"):
        setting.put(precision)
        getattr(sluice, op)(*input_and_weight())
        assert passed.pop() == ({"precision": "tf32"} if precision == "tf32" else {})


@pytest.mark.parametrize("op", OPS)
def test_other_calls_do_not_read_the_setting(
    op: str, monkeypatch: pytest.MonkeyPatch, passed: list[dict[str, Any]]
) -> None:
    def fail(*_: str) -> str:
        raise AssertionError

    monkeypatch.setattr(_precision, "_precision", fail)
    calls = [
        input_and_weight(torch.float16),
        input_and_weight(torch.bfloat16),
        input_and_weight(torch.float64),
        input_and_weight(device="cpu"),
    ]
    for x, w in [*calls, (torch.zeros(2, 4, 30), torch.zeros(4, 4, 3))]:
        getattr(sluice, op)(x, w)
        assert passed.pop() == {}


@pytest.mark.parametrize("op", OPS)
def test_plans_and_preparations_pass_the_setting_on(op: str, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    ask = _call.ask

    def noted(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> torch.Tensor:
        asked.append(options)
        return ask(name, arguments, options)

    monkeypatch.setattr(_call, "ask", noted)
    for precision, wanted in (("tf32", "tf32"), ("none", "ieee")):
        setting.put(precision)
        for device in ("cpu", "meta"):
            x, w = torch.empty(2, 4, 30, device=device), torch.empty(4, 4, 3, device=device)
            sluice.plan(op, x, w, device=H200)
            assert asked.pop().get("precision", "ieee") == wanted
            sluice.plan(op, x.half(), w.half(), device=H200)
            assert "precision" not in asked.pop()
        x, w = torch.zeros(2, 4, 30), torch.zeros(4, 4, 3)
        sluice.prepare("gelu", x, w, op=op)
        assert asked.pop().get("precision", "ieee") == wanted
        with torch.autocast("cpu", torch.bfloat16):  # which decides first
            sluice.prepare("gelu", x, w, op=op)
        assert "precision" not in asked.pop()


# --- the raw ops ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("precision", ["bf16", "", "TF32", "none"])
def test_an_unknown_precision_is_refused(op: str, precision: str) -> None:
    raw, plan = getattr(torch.ops.sluice, op), getattr(torch.ops.sluice, f"_plan_{op}")
    asked = {"linked": False, "device": list(dataclasses.astuple(H200))}
    words = f'{op}: precision must be "ieee" or "tf32", got {precision}'
    x, w = torch.zeros(2, 4, 30), torch.zeros(4, 4, 3)
    for call in (
        lambda: raw(x, w, precision=precision),
        lambda: raw(x.half(), w.half(), precision=precision),
        lambda: raw(x.to("meta"), w.to("meta"), precision=precision),
        lambda: raw(*input_and_weight(), precision=precision),
        lambda: plan(meta(2, 4, 30), meta(4, 4, 3), precision=precision, **asked),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value).split("\n", 1)[0].strip() == words.strip()


@pytest.mark.parametrize("op", OPS)
def test_precisions_of_a_cpu_are_the_same(op: str) -> None:
    x, w = torch.randn(2, 4, 30), torch.randn(4, 4, 3)
    raw = getattr(torch.ops.sluice, op)
    for dtype in (torch.float32, torch.float16, torch.float64):
        wanted = raw(x.to(dtype), w.to(dtype))
        for precision in ("ieee", "tf32"):
            assert torch.equal(raw(x.to(dtype), w.to(dtype), precision=precision), wanted)
    opcheck(raw.default, (x, w), {"precision": "tf32", "post": "gelu"})


# --- modules ----------------------------------------------------------------------------------------------------------
def test_a_repeated_call_sees_a_changed_setting(
    setting: Setting, passed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "PLAIN", (FakeTensor,))
    monkeypatch.setattr(repeated, "packed_weight", lambda kept, module, weight: weight)
    for op, kind, numbers in (
        ("conv1d", sluice.nn.Conv1d, (1, 0, 1, 1)),
        ("conv_transpose1d", sluice.nn.ConvTranspose1d, (1, 0, 0, 1, 1)),
    ):
        module, (x, w) = kind(4, 4, 3), input_and_weight()
        call = repeated.Call(kind, (), repeated.like(x), repeated.like(w), op, numbers)
        for precision in ("tf32", "ieee", "tf32"):
            setting.put(precision)
            assert call.repeat(module, x, w, None) is not None
            assert passed.pop() == ({"precision": "tf32"} if precision == "tf32" else {})
        x, w = input_and_weight(torch.float16)
        assert call._replace(weight=repeated.like(w)).repeat(module, x, w, None) is not None
        assert passed.pop() == {}


def test_a_dense_module_of_float32_is_sluices_whatever_the_setting(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    x, w, narrow = fakes((2, 4, 30), (4, 4, 3), (4, 1, 3))
    dense, depthwise = sluice.nn.Conv1d(4, 4, 3), sluice.nn.Conv1d(4, 4, 3, groups=4)
    for precision in ("ieee", "tf32"):
        setting.put(precision)
        assert not convolution.is_torchs_kernel(dense, w, x)
        assert convolution.is_torchs_kernel(dense, w.double(), x.double())
        assert not convolution.is_torchs_kernel(dense, w.half(), x.half())
        assert not convolution.is_torchs_kernel(depthwise, narrow, x)
        assert convolution.is_torchs_kernel(dense, torch.zeros(4, 4, 3), torch.zeros(2, 4, 30))
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: False)
    assert convolution.is_torchs_kernel(dense, w, x)
    assert not convolution.is_torchs_kernel(dense, w.half(), x.half())
