"""Writes in place that a stream would not do as the model does: the reason of each, and a model that stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from stream_models import UNKNOWN, Calls, Padded, assert_refused

pytestmark = pytest.mark.no_gpu
Write = Callable[[Any, torch.Tensor], Any]
TIMES = "changes a slice of time in place, and what is read later has more positions"
COPIES = "changes in place what is read later, and what contiguous() may have copied"
MODELS, CONSTANT = "changes a tensor of the model in place", "changes in place what does not depend on the input"


def assigned(self: Any, x: torch.Tensor) -> torch.Tensor:
    x[..., 1:] = 0.0
    return x


def assigned_channels(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    y[:, 0] += 1.0
    return y


def assigned_to_new(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.ones(1, 4, 8)
    y[:, 0] = x[:, 0]  # a tensor with values
    return x + y[..., :1]


def attribute(self: Any, x: torch.Tensor) -> torch.Tensor:
    x.data = x * 2.0
    return x


def out_as_statement(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    torch.add(y, 1.0, out=y)
    return y


def out_of_model(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.exp(self.gain, out=self.gain)
    return x * self.gain


def later_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    z = y[..., 2:]
    z += 1.0
    return y


def earlier_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    F.relu_(x[..., :-1])
    return x


def narrowed(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    y.narrow(2, 1, y.shape[-1] - 1)[:, :2].mul_(2.0)
    return y.mT.mT


def contiguous(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x.mT.contiguous()
    y *= 2.0
    return x + y.mT


def contiguous_before(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.conv(x)
    z = y.contiguous()
    y.relu_()
    return z


def transposed(self: Any, x: torch.Tensor) -> torch.Tensor:
    x.transpose_(1, 2)
    return x.mT


def unsqueezed(self: Any, x: torch.Tensor) -> torch.Tensor:
    x.unsqueeze_(1)
    return x


def own_parameter(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.gain.mul_(2.0)
    return x * self.gain


def own_parameter_by_module(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * self.relu(self.gain[:, 0])[:, None]


def own_parameters(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch._foreach_mul_([self.gain, self.gain], 2.0)
    return x


def own_parameter_by_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * self.gain.mul_(x.shape[1])


def own_parameter_by_input(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.gain[None].mul_(x)
    return x


def view_of_parameter(self: Any, x: torch.Tensor) -> torch.Tensor:
    part = self.gain.detach()[1:]
    part -= 1.0
    return x * self.gain


def own_buffer(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.offset += 1.0
    return x + self.offset


def own_buffer_by_data(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.offset.data = torch.ones(4, 1)
    return x + self.offset


def own_buffer_by_input(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = x + self.offset
    self.offset.copy_(x.amax(1))
    return y


def new_tensor_by_input(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.ones(1, 4, 1)
    y += x
    return x + y


def own_tensor(self: Any, x: torch.Tensor) -> torch.Tensor:
    F.relu(self.plain, inplace=True)
    return x + self.plain


def own_out(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.ones(4, 1, out=self.offset)
    return x + self.offset


def initialised(self: Any, x: torch.Tensor) -> torch.Tensor:
    nn.init.ones_(self.offset)
    return x + self.offset


def read_before(self: Any, x: torch.Tensor) -> torch.Tensor:
    gain = torch.ones(4, 1)
    y = x * gain
    gain += 1.0
    return y * gain


def computed_and_read_before(self: Any, x: torch.Tensor) -> torch.Tensor:
    gain = self.gain.exp()
    y = x * gain
    gain += 1.0
    return y * gain


def computed_and_changed_by_size(self: Any, x: torch.Tensor) -> torch.Tensor:
    gain = self.gain.exp()
    gain *= x.shape[1]
    return x * gain


def aten(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.ops.aten.add_.Tensor(x, 1.0)  # a statement
    return x


def aten_of_parameter(self: Any, x: torch.Tensor) -> torch.Tensor:
    torch.ops.aten.mul_.Scalar(self.gain, 2.0)
    return x * self.gain


def foreign(x: torch.Tensor) -> None:
    x.mul_(2.0)


torch.fx.wrap("foreign")


def by_foreign(self: Any, x: torch.Tensor) -> torch.Tensor:
    foreign(x)
    return x


# The function, and a row's module, op and reason.
WRITES: list[tuple[Write, str, str, str]] = [
    (assigned, "0", "setitem", "assigns to a part of a tensor"),
    (assigned_channels, "0", "setitem", "assigns to a part of a tensor"),
    (assigned_to_new, "0", "setitem", "assigns to a part of a tensor"),
    (attribute, "0", "setattr", "sets 'data' of a tensor"),
    (out_as_statement, "0", "add", "writes into another tensor"),
    (out_of_model, "0", "exp", "writes into another tensor"),
    (later_positions, "0", "add", TIMES),
    (earlier_positions, "0", "relu", TIMES),
    (narrowed, "0", "mul", TIMES),
    (contiguous, "0", "mul", COPIES),
    (contiguous_before, "0", "relu", COPIES),
    (transposed, "0", "transpose", "changes a tensor's shape in place"),
    (unsqueezed, "0", "unsqueeze", "changes a tensor's shape in place"),
    (own_parameter, "0", "mul", MODELS),
    (own_parameter_by_module, "0.relu", "ReLU", MODELS),
    (own_parameters, "0", "foreach_mul", MODELS),
    (own_parameter_by_size, "0", "mul", CONSTANT),
    (own_parameter_by_input, "0", "mul", CONSTANT),
    (view_of_parameter, "0", "sub", MODELS),
    (own_buffer, "", "Sequential", "changes '0.offset' in place"),
    (own_buffer_by_data, "", "Sequential", "changes '0.offset' in place"),
    (own_buffer_by_input, "", "Sequential", "changes '0.offset' in place"),
    (new_tensor_by_input, "0", "add", CONSTANT),
    (own_tensor, "", "Sequential", "changes '0.plain' in place"),
    (own_out, "", "Sequential", "changes '0.offset' in place"),
    (initialised, "", "Sequential", "changes '0.offset' in place"),
    (read_before, "", "Sequential", "changes a tensor in place that it has read"),
    (
        computed_and_read_before, "0", "add",
        "changes in place what was read before, and does not depend on the input",
    ),
    (computed_and_changed_by_size, "0", "mul", CONSTANT),
    (aten, "0", "add_.Tensor", "changes its arguments in place"),
    (aten_of_parameter, "0", "mul_.Scalar", "changes its arguments in place"),
    (by_foreign, "0", "foreign", UNKNOWN),
]  # fmt: skip


@pytest.fixture
def parts() -> Iterator[dict[str, Any]]:
    """Modules and tensors of a model; nothing may change them."""
    found: dict[str, Any] = {
        "gain": nn.Parameter(torch.rand(4, 1)), "offset": nn.Buffer(torch.rand(4, 1)), "plain": -torch.rand(4, 1),
        "conv": Padded(nn.Conv1d(4, 4, 3), 2), "relu": nn.ReLU(inplace=True),
    }  # fmt: skip
    before = copy.deepcopy(found)
    yield found
    assert all(torch.equal(found[name], before[name]) for name in ("gain", "offset", "plain"))


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write[0].__name__)
def test_reasons(write: tuple[Write, str, str, str], parts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the module around the write, the op and the reason; the model is as it was."""
    function, *row = write
    assert_refused(nn.Sequential(Calls(function, **parts)), row, capsys)


def test_a_new_tensor_may_change_before_it_is_read(parts: Any) -> None:
    """The forward's own, with values; the model's are read alone."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        gain = torch.zeros(4, 1)
        gain[1:] = self.offset[1:]
        gain += 1.0
        return x * gain.mul_(2.0)

    model, x = Calls(forward, **parts).eval(), torch.randn(1, 4, 5)
    with torch.no_grad():
        torch.testing.assert_close(sluice.streaming(model)(x), model(x))
