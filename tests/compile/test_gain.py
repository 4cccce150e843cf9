"""What folded graphs gain by our reckoning, and from which size on models run them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.profiler import profile

from folded_modules import assert_twins, parent, x_of
from sluice.compile import folded_graph
from sluice.compile.gain import ALWAYS, GUARDS, GUARDS_OF_MODULE, NONE, Gain, Times, on_cpu, times_of

pytestmark = pytest.mark.no_gpu


def of(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float16) -> Times:
    """Times of a function's graph."""
    with FakeTensorMode():
        tensors = [torch.empty(shape, dtype=dtype) for shape in shapes]
        return times_of(make_fx(function)(*tensors).graph)


def test_times() -> None:
    relu = of(lambda x: x.relu()[:, 1:].mT, (4, 500, 1000))
    assert relu == Times(6.0, 4.0)  # 4 MB are read and 4 MB are written; views are free
    conv = of(F.conv1d, (4, 500, 1000), (500, 500, 1))
    assert conv == Times(25.0, (4e6 + 4e6 + 5e5) / 2e6)
    assert of(F.conv1d, (4, 500, 1000), (500, 500, 3), dtype=torch.float32).host == 25.0
    wide = of(F.conv1d, (4, 500, 1000), (500, 500, 3))
    assert wide.host == 45.0  # cuDNN's conversions, which read and write both sequences again
    assert wide.device > 2.9 * conv.device


def test_a_gain_of_the_host_or_of_long_calls() -> None:
    assert Gain(Times(200.0, 1.0), Times(90.0, 1.0)).least(4) == 0.0
    short = Gain(Times(110.0, 10.0), Times(90.0, 5.0))
    assert short.least(4) == pytest.approx((90 + GUARDS + GUARDS_OF_MODULE * 4) / 10)
    assert (short + short).least(4) == pytest.approx((180 + GUARDS + GUARDS_OF_MODULE * 4) / 20)
    assert Gain(Times(100.0, 10.0), Times(90.0, 10.0)).least(4) == float("inf")
    assert ALWAYS.least(1000) == (ALWAYS + short).least(1000) == 0.0
    assert NONE.least(0) == float("inf")
    assert on_cpu(1, 0) == on_cpu(0, 12) == ALWAYS
    assert on_cpu(0, 11) == NONE


def runs_of(model: nn.Module, x: torch.Tensor) -> str:
    """Whether a call of a convolution and a ReLU is folded, or left to Python with sluice's convolution or torch's."""
    with torch.no_grad(), profile() as recorded:
        model(x)
    names = {event.name for event in recorded.events()}
    if "aten::relu" not in names:
        return "folded"
    assert ("sluice::conv1d" in names) != ("aten::conv1d" in names)
    return "left" if "sluice::conv1d" in names else "torch's"


@pytest.mark.parametrize("first", [10, 1000])
def test_short_calls_are_left_whichever_comes_first(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain from 800 positions on, and torch's convolution up to 180."""
    gain = Gain(Times(90.0, first / 8), Times(90.0, first / 80))
    monkeypatch.setattr("sluice.compile.gain.GUARDS", 10.0)
    monkeypatch.setattr("sluice.compile.gain.GUARDS_OF_MODULE", 0.0)
    monkeypatch.setattr(folded_graph, "on_cpu", lambda changes, calls: gain)
    model, twin, _ = parent(lambda self, x: F.relu(self.conv(x)))
    assert_twins(model, twin, x_of(first))
    lengths = {10: "torch's", 179: "torch's", 181: "left", 799: "left", 801: "folded", 11: "torch's", 2000: "folded"}
    for length, expected in lengths.items():
        assert_twins(model, twin, x_of(length))
        assert runs_of(model, x_of(length)) == expected, length
    for module in (model, twin):
        module.double()
    assert_twins(model, twin, x_of(first).double())  # another place is another try
    assert runs_of(model, x_of(801).double()) == "folded"
