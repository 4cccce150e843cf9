"""Functions and methods that mix times: the reason of each, and their uses that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from stream_models import LENGTH, UNKNOWN, Calls, assert_refused

pytestmark = pytest.mark.no_gpu
Function = Callable[[Any, torch.Tensor], Any]
FUNCTIONS: dict[str, tuple[Function, str, str]] = {
    "mean": (lambda self, x: x - x.mean(-1, keepdim=True), "mean", "takes the mean over time"),
    "sum of all": (lambda self, x: x / x.sum(), "sum", "takes the sum over time"),
    "maximum": (lambda self, x: x / x.amax((1, 2), keepdim=True), "amax", "takes the amax over time"),
    "maximum by name": (lambda self, x: x - x.max(dim=2)[0][..., None], "max", "takes the max over time"),
    "standard deviation": (lambda self, x: x / x.std(True), "std", "takes the std over time"),
    "norm": (lambda self, x: x / x.norm(1, 2, keepdim=True), "norm", "takes the norm over time"),
    "softmax": (lambda self, x: x.softmax(-1), "softmax", "takes softmax along time"),
    "cumsum": (lambda self, x: x.cumsum(2), "cumsum", "takes cumsum along time"),
    "normalize": (lambda self, x: F.normalize(x, 1, 2), "normalize", "takes normalize along time"),
    "flip": (lambda self, x: x.flip(-1), "flip", "takes flip along time"),
    "flip of two": (lambda self, x: x.flip(1, 2), "flip", "takes flip along time"),
    "flip of a list": (lambda self, x: torch.flip(x, [1, 2]), "flip", "takes flip along time"),
    "roll": (lambda self, x: torch.roll(x, 1, 2), "roll", "takes roll along time"),
    "roll by name": (lambda self, x: torch.roll(x, 1, dims=2), "roll", "takes roll along time"),
    "roll of all": (lambda self, x: torch.roll(x, 1), "roll", "takes roll along time"),
    "sort": (lambda self, x: torch.sort(x)[0], "sort", "takes sort along time"),
    "glu": (lambda self, x: F.glu(x), "glu", "takes glu along time"),
    "chunk": (lambda self, x: x.chunk(2, -1)[0], "chunk", "takes chunk along time"),
    "unbind": (lambda self, x: x.unbind(2)[0], "unbind", "takes unbind along time"),
    "cat": (lambda self, x: torch.cat([x, x], -1), "cat", "joins tensors along time"),
    "cat of an axis": (lambda self, x: torch.cat([x, x], axis=2), "cat", "joins tensors along time"),
    "cat of chunks": (lambda self, x: torch.cat(x.chunk(2, 1), 2), "cat", "joins tensors along time"),
    "cat with a constant": (
        lambda self, x: torch.cat([x, torch.ones(1, 4, 1)], 1), "cat",
        "joins tensors with others that have no time",
    ),
    "a cache": (
        lambda self, x: torch.cat([torch.zeros(1, 4, 2), x], 2), "cat", "joins tensors with others that have no time",
    ),
    "squeeze": (lambda self, x: x.squeeze(), "squeeze", "squeezes all dimensions"),
    "squeeze of time": (lambda self, x: x.squeeze(-1), "squeeze", "squeezes time"),
    "reshape": (
        lambda self, x: x.reshape(1, 4, -1), "reshape",
        "changes the shape: permute, transpose, squeeze and unsqueeze keep time where it can be followed",
    ),
    "interpolate": (lambda self, x: F.interpolate(x, scale_factor=2), "interpolate", "interpolates over time"),
    "group_norm": (lambda self, x: F.group_norm(x, 2), "group_norm", "normalises over time"),
    "layer_norm": (lambda self, x: F.layer_norm(x, (8,)), "layer_norm", "normalises over time"),
    "layer_norm of a shape": (
        lambda self, x: F.layer_norm(x.mT, x.shape[1:2]).mT, "layer_norm", "normalises over sizes that are not known",
    ),
    "linear": (lambda self, x: F.linear(x, torch.ones(8, 8)), "linear", "works along time"),
    "attention": (
        lambda self, x: F.scaled_dot_product_attention(x, x, x), "scaled_dot_product_attention",
        "attends over time",
    ),
    "max_pool1d": (lambda self, x: F.max_pool1d(x, 2), "max_pool1d", "pools over time"),
    "adaptive_avg_pool1d": (lambda self, x: F.adaptive_avg_pool1d(x, 2), "adaptive_avg_pool1d", "pools over time"),
    "fft": (lambda self, x: torch.fft.rfft(x).abs(), "fft_rfft", "transforms over time"),
    "matmul": (lambda self, x: x @ x.mT @ x, "matmul", "sums over time"),
    "conv1d": (
        lambda self, x: F.conv1d(x, x[..., 2:]), "conv1d", "takes a weight that depends on the input",
    ),
    "conv1d with padding": (
        lambda self, x: F.conv1d(x, torch.ones(4, 4, 3), None, 1, 1), "Calls",  # the module of the function
        "pads 1 on the right, so its last results see zeros in the place of later inputs",
    ),
    "conv1d of sizes": (
        lambda self, x: F.conv1d(x, torch.ones(4, 1, 3), groups=x.shape[1]), "conv1d",
        "takes numbers that are not known",
    ),
    "conv2d": (lambda self, x: F.conv2d(x[:, None], torch.ones(1, 1, 1, 1))[:, 0], "conv2d", UNKNOWN),
    "dropout": (lambda self, x: torch.dropout(x, 0.5, True), "dropout", "is in training mode; call eval()"),
    "mean of the batch": (lambda self, x: x - x.mean(0), "mean", "takes the mean over the batch"),
    "softmax of the batch": (lambda self, x: x.softmax(0), "softmax", "takes softmax along the batch"),
    "cat of the batch": (lambda self, x: torch.cat([x, x]), "cat", "joins tensors along the batch"),
    "split of the batch": (lambda self, x: x.split(1)[0], "split", "takes split along the batch"),
    "squeeze of the batch": (lambda self, x: x.squeeze(0)[None], "squeeze", "squeezes the batch"),
    "a row": (lambda self, x: x[0][None], "getitem", "takes some rows of the batch"),
    "a row elsewhere": (lambda self, x: x.mT.transpose(0, 2)[..., 1], "getitem", "takes some rows of the batch"),
    "rows and channels": (
        lambda self, x: x + x.transpose(0, 1), "add", "takes tensors whose batch is in other dimensions",
    ),
    "a constant of rows": (lambda self, x: x * torch.ones(3, 1, 1), "mul", "takes a constant of 3 rows of a batch"),
    "a constant with positions": (lambda self, x: x * torch.ones(8), "mul", "takes a constant of 8 positions"),
    "a constant of more dimensions": (
        lambda self, x: x * torch.ones(2, 1, 1, 1), "mul", "takes a constant of more dimensions",
    ),
    "another rate": (
        lambda self, x: x + x[..., 1:], "add", "takes tensors of other times, of another rate or padding",
    ),
    "time elsewhere": (lambda self, x: x + x.mT, "add", "takes tensors whose time is in other dimensions"),
    "positions": (lambda self, x: x * torch.arange(x.shape[-1]), "arange", LENGTH),
    "the length": (lambda self, x: x / x.shape[-1], "truediv", "takes the length, which a stream does not know"),
    "the elements": (lambda self, x: x / x.numel(), "numel", "takes the length, which a stream does not know"),
    "arithmetic": (lambda self, x: x[..., : x.shape[-1] ** 2], "pow", LENGTH),
    "a part of the shape": (
        lambda self, x: x / x.shape[1:][1], "getitem",
        "takes a part of the shape with the length, which a stream does not know",
    ),
    "shapes": (
        lambda self, x: x * (x.shape == (1, 4, 8)), "eq",
        "takes what has no time axis, but depends on the input's shape",
    ),
    "the last positions": (lambda self, x: x[..., -3:], "getitem", "takes the last positions"),
    "the first positions": (lambda self, x: x[..., :3], "getitem", "takes the first 3 positions"),
    "a narrow part": (lambda self, x: x.narrow(2, 1, 3), "narrow", "takes the first 4 positions"),
    "a single position": (lambda self, x: x[..., 0], "getitem", "takes single positions"),
    "every second position": (lambda self, x: x[..., ::2], "getitem", "takes a slice of time with a step of 2"),
    "an end of another rate": (
        lambda self, x: x[..., : x.shape[-1] // 2], "getitem", "ends a slice of time at the length of another rate",
    ),
    "a start at the length": (
        lambda self, x: x[..., x.shape[-1] - 3 :], "getitem", "begins a slice of time at what is not a number",
    ),
    "an end at a size": (
        lambda self, x: x[..., : x.shape[1]], "getitem", "ends a slice of time at what is not a number",
    ),
    "a list of channels": (
        lambda self, x: x[:, [0, 1]], "getitem", "takes an index that is not a number or a slice",
    ),
    "out": (lambda self, x: torch.add(x, 1, out=x), "add", "writes into another tensor"),
    "a dimension of the tensor": (
        lambda self, x: x.softmax(x.dim() - 2), "softmax",
        "takes a dimension that is not a number, sub",
    ),
    "an order of the tensor": (
        lambda self, x: x.permute(dims=x.dim()), "permute", "permutes in an order that is not known",
    ),
    "a size of the tensor": (
        lambda self, x: x * x.size(x.dim() - 1), "size", "takes a size whose dimension is not a number",
    ),
    "a pad of the tensor": (
        lambda self, x: F.pad(x, (x.shape[1], 0)), "pad", "pads by numbers that are not known",
    ),
    "an unknown function": (lambda self, x: torch.nanmean(x, 1), "nanmean", UNKNOWN),
    "in place, unknown": (lambda self, x: (x.zero_(), x)[1], "zero", UNKNOWN),
    "arguments that do not fit": (
        lambda self, x: x.permute(0, 1), "permute", "has arguments that no rule knows: 2 is not in list",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reasons(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names the module around the function, the function and the reason."""
    function, op, reason = FUNCTIONS[name]
    assert_refused(nn.Sequential(Calls(function)), ["0", op, reason], capsys)


# Beside time, the same functions are a stream's.
KEPT: dict[str, Function] = {
    "mean": lambda self, x: x - x.mean(1, keepdim=True),
    "mean without the dimension": lambda self, x: x * x.mean(1)[:, None],
    "sum with NumPy's names": lambda self, x: x + torch.sum(x, axis=1, keepdims=True),
    "maximum": lambda self, x: x - x.max(dim=1, keepdim=True)[0],
    "maximum by name": lambda self, x: x - x.max(dim=1, keepdim=True).values,
    "maximum of two": lambda self, x: torch.max(x, 0.5 * x),
    "standard deviation": lambda self, x: x / (x.std(1, False, True) + 1),
    "norm": lambda self, x: x / x.norm(2, 1, keepdim=True),
    "normalize": lambda self, x: F.normalize(x) + F.normalize(x, 1, 1),
    "flip": lambda self, x: x.flip(1) + torch.flip(x, [1]),
    "roll": lambda self, x: torch.roll(x, 1, 1) + x.roll(shifts=1, dims=1),
    "sort": lambda self, x: torch.sort(x, dim=1)[0],
    "cumsum": lambda self, x: x.cumsum(1),
    "cat of chunks": lambda self, x: torch.cat(x.chunk(4, 1)[1:], 1),
    "split": lambda self, x: torch.cat(x.split([1, 3], 1)[::-1], 1),
    "unbind": lambda self, x: torch.stack(x.unbind(1)[::-1], 1),
    "moveaxis": lambda self, x: x.moveaxis(0, 2).moveaxis(2, 0),
    "swapaxes": lambda self, x: x.swapaxes(1, 2).swapdims(2, 1),
    "t": lambda self, x: x * x.mean(1).t().t()[:, None],
    "sizes of channels": lambda self, x: x * torch.arange(x.shape[1])[:, None] / x.size(1),
    "a dtype": lambda self, x: x.double().exp().to(x.dtype),
    "a slice of channels": lambda self, x: x[:, : x.shape[1] // 2] * x[:, x.shape[1] // 2 :],
    "arguments by name": lambda self, x: F.relu(input=torch.narrow(input=x, dim=1, start=1, length=2)),
    "all of time": lambda self, x: x[..., : x.shape[-1]] + x.narrow(2, 0, x.size(2)) + x[:, :, 0:],
    "the length there and back": lambda self, x: x[..., : 2 * x.shape[-1] // 2 - 3 + 3],
    "a dead mean over time": lambda self, x: (x.mean(-1), x)[1],
    "a constant": lambda self, x: x * torch.ones(4, 1) + torch.ones(4, 1).cumsum(0),
    "a parameter": lambda self, x: x * self.gain.exp() + torch.cat([self.gain, self.gain])[:4].flip(0),
    "a module of a parameter": lambda self, x: x * self.linear(self.gain.T).T,
    "chunks of a parameter": lambda self, x: x[:, :2] * self.gain.chunk(2)[1],
    "layer_norm": lambda self, x: F.layer_norm(x.mT, (4,), self.gain[:, 0]).mT + F.rms_norm(x.mT, (4,)).mT,
    "linear": lambda self, x: F.linear(x.transpose(1, 2), self.linear.weight).transpose(dim0=1, dim1=2),
    "movedim": lambda self, x: self.linear(x.movedim(1, -1)).movedim(source=-1, destination=1),
    "negative padding": lambda self, x: F.pad(self.conv(x), (0, -2)),
    "padding and slices": lambda self, x: self.plain(F.pad(x, (5, 0))[..., 3:]),
    "padding of four dimensions": lambda self, x: self.plain(F.pad(x[:, :, None], (2, 0, 0, 0))[:, :, 0]),
    "a new dimension": lambda self, x: self.conv(x)[:, None, ..., :-2][:, 0],
    "conv1d": lambda self, x: F.conv1d(F.pad(x, (2, 0)), self.plain.weight, self.plain.bias, (1,), "valid"),
    "conv1d of a computed weight": lambda self, x: F.conv1d(x, self.plain.weight * 0.5, padding=2)[..., :-2],
    "conv_transpose1d": lambda self, x: F.conv_transpose1d(x, self.plain.weight, None, 2, 0, 0, 2)[..., :-1],
    "conv_transpose1d by name": lambda self, x: F.conv_transpose1d(
        x, weight=self.plain.weight, bias=self.plain.bias, stride=4, output_padding=1
    ),
    "in place": lambda self, x: x.clone().add_(1).mul_(2).clamp_(min=0),
}


@pytest.mark.parametrize("name", KEPT)
def test_functions_that_leave_time_as_it_is(device: str, name: str) -> None:
    if device != "cpu" and name in ("sizes of channels", "a constant"):
        pytest.skip("makes a tensor on the CPU")
    model = Calls(
        KEPT[name], gain=nn.Parameter(torch.rand(4, 1)), linear=nn.Linear(4, 4),
        conv=nn.Conv1d(4, 4, 3, padding=2), plain=nn.Conv1d(4, 4, 3, padding="valid"),
    ).to(device).requires_grad_(False)  # fmt: skip
    stream, x = sluice.streaming(model), torch.randn(1, 4, 12, device=device)
    chunks = torch.cat([stream(chunk) for chunk in x.split([1, 4, 2, 5], -1)], -1)
    torch.testing.assert_close(chunks, model(x))
