"""sluice.replace: control flow, errors, Python's structures and torch's modes inside forwards."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import functools
import itertools
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F

from constructed_models import LOG, Forward, assert_same_steps, of_forward, some

pytestmark = pytest.mark.no_gpu


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Data:
    value: Any
    length: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class FailedError(ValueError):
    def __init__(self, length: int) -> None:
        super().__init__(f"failed at {length}")
        self.length = length


class Doubling:
    """A context that changes what its owner computes."""

    factor = 1.0

    def __enter__(self) -> float:
        Doubling.factor *= 2
        return Doubling.factor

    def __exit__(self, *error: object) -> bool:
        Doubling.factor /= 2
        LOG.append(("exit", error[0]))
        return error[0] is FailedError


def folded(s: Any, x: torch.Tensor) -> torch.Tensor:
    """What is folded in every case."""
    return torch.tanh(s.conv(F.relu(x)))


def while_of_shapes(s: Any, x: torch.Tensor) -> Any:
    count = 0
    while x.shape[-1] > 5:
        x, count = folded(s, x)[..., ::2], count + 1
    return x, count


def recursion(s: Any, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
    return x if depth == 0 else recursion(s, folded(s, x), depth - 1) + x


def generator(s: Any, x: torch.Tensor) -> Any:
    def parts() -> Iterator[torch.Tensor]:
        for i in range(2):
            LOG.append(i)
            yield folded(s, x) * i

    return list(parts()), sum(parts())


def for_else(s: Any, x: torch.Tensor) -> Any:
    for i in range(3):
        if i * 6 == x.shape[-1]:
            break
    else:
        return folded(s, x), "none"
    return folded(s, x) * 2, i


def closure(s: Any, x: torch.Tensor) -> Any:
    count = 0

    def step() -> torch.Tensor:
        nonlocal count
        count += 1
        return folded(s, x) * count

    return step() + step(), count


def dictionaries(s: Any, x: torch.Tensor) -> Any:
    found = {"a": x, "b": folded(s, x)} | {"c": 1}
    found.update(d=[*found])
    return collections.OrderedDict(sorted(found.items(), key=lambda item: item[0], reverse=True))


def class_inside(s: Any, x: torch.Tensor) -> Any:
    class Local:
        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

        def __add__(self, other: Any) -> torch.Tensor:
            return self.value + other

    return Local(folded(s, x)) + 1


def swallowed(s: Any, x: torch.Tensor) -> Any:
    try:
        raise FailedError(x.shape[-1])
    except ValueError as error:
        y = folded(s, x) * error.length
        text = str(error)
    finally:
        LOG.append("finally")
    return y, text


def wrong_convolution(s: Any, x: torch.Tensor) -> Any:
    try:
        return s.conv(x[:, :3]), "passed"
    except RuntimeError as error:
        return folded(s, x), str(error)


def missing(s: Any, x: torch.Tensor) -> Any:
    try:
        return s.missing(x)
    except AttributeError as error:
        LOG.append(str(error))
    with contextlib.suppress(KeyError, ZeroDivisionError):
        LOG.append({}[x.shape[-1]] or 1 / 0)
    return folded(s, x)


def raises(s: Any, x: torch.Tensor) -> Any:
    y = folded(s, x)
    s.seen = x.shape[-1]
    LOG.append("before")
    if x.shape[-1] == 9:
        try:
            {}["key"]
        except KeyError as error:
            raise FailedError(y.shape[-1]) from error
    return y


def asserts(s: Any, x: torch.Tensor) -> Any:
    y = folded(s, x)
    assert x.shape[-1] != 9, f"no {tuple(x.shape)}"
    return y


def fails_in_torch(s: Any, x: torch.Tensor) -> Any:
    LOG.append("before")
    x.add_(1)
    return folded(s, x) + torch.ones(4, 12)


def contexts(s: Any, x: torch.Tensor) -> Any:
    @contextlib.contextmanager
    def noted(name: str) -> Iterator[str]:
        LOG.append(name)
        try:
            yield name
        finally:
            LOG.append(name + " over")

    with noted("a") as a, Doubling() as factor, contextlib.ExitStack() as stack:
        stack.callback(LOG.append, "callback")
        y = folded(s, x) * factor * Doubling.factor
        if x.shape[-1] == 9:
            raise FailedError(9)
        return y, a
    return folded(s, x)


def stop_iteration(s: Any, x: torch.Tensor) -> Any:
    steps = iter([1.0, 2.0])
    y = folded(s, x) * next(steps) * next(steps)
    return y, next(steps, "end")


def out_argument(s: Any, x: torch.Tensor) -> Any:
    y = torch.empty_like(x)
    torch.add(folded(s, x), 1, out=y)
    return y, s.other(F.relu(y))


def grad_inside(s: Any, x: torch.Tensor) -> Any:
    with torch.enable_grad():
        z = x.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(folded(s, z).square().sum(), z)
    return folded(s, x), slope, torch.is_grad_enabled()


def default_dtype(s: Any, x: torch.Tensor) -> Any:
    former = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return folded(s, x), torch.ones(3) / 3, torch.get_default_dtype()
    finally:
        torch.set_default_dtype(former)


def default_dtype_left(s: Any, x: torch.Tensor) -> Any:
    y = folded(s, x)
    torch.set_default_dtype(torch.float64)
    return y, torch.ones(2)


def seeded(s: Any, x: torch.Tensor) -> Any:
    torch.manual_seed(x.shape[-1])
    noise = torch.randn_like(x)
    return folded(s, x + noise), F.dropout(folded(s, noise), 0.5, True), torch.rand(1).item()


def generator_argument(s: Any, x: torch.Tensor) -> Any:
    made = torch.Generator().manual_seed(3)
    return folded(s, x) + torch.rand(x.shape, generator=made) + torch.rand(x.shape, generator=made)


FLOW: dict[str, Forward] = {
    **{f.__name__.replace("_", " "): f for f in (
        while_of_shapes, recursion, generator, for_else, closure, dictionaries, class_inside, swallowed, missing,
        wrong_convolution, raises, asserts, fails_in_torch, contexts, stop_iteration, out_argument, grad_inside,
        default_dtype, default_dtype_left, seeded, generator_argument,
    )},
    "comprehension": lambda s, x: {n: folded(s, x)[..., :n] for n in range(1, x.shape[-1], 4)},
    "walrus": lambda s, x: ((y := folded(s, x)) + y, y),
    "map and filter": lambda s, x: [*(one * 2 for one in filter(lambda one: one.dim() == 3, [folded(s, x),
        x[0]]))],
    "itertools": lambda s, x: [a * b for a, b in itertools.product([folded(s, x)], [1, 2])],
    "reduce": lambda s, x: functools.reduce(lambda y, layer: layer(F.relu(y)), [s.conv, s.other], x),
    "sorted": lambda s, x: sorted([folded(s, x), x.new_zeros(1)], key=lambda one: one.numel()),
    "NamedTuple": lambda s, x: Pair(folded(s, x), second=Pair(x.shape[-1], None)),
    "dataclass": lambda s, x: Data(folded(s, x), length=x.shape[-1]),
    "frozen dataclass": lambda s, x: Frozen(folded(s, x)),
    "replaced dataclass": lambda s, x: dataclasses.replace(Data(x, 3), value=folded(s, x)),
    "namespace": lambda s, x: types.SimpleNamespace(value=folded(s, x), length=x.shape[-1]),
    "nested": lambda s, x: {"a": (folded(s, x), [x, {"b": None}]), 3: "text", (1, 2): 1.5},
    "nothing": lambda s, x: LOG.append(folded(s, x).shape),
    "a number": lambda s, x: folded(s, x).shape[-1] * 2,
    "the input": lambda s, x: (x, folded(s, x), x),
    "input alone": lambda s, x: [folded(s, x), x][1],
    "a view of the input": lambda s, x: (x[..., 1:], folded(s, x), x.transpose(1, 2), x.view(-1)),
    "views of a result": lambda s, x: (lambda y: (y, y[:, 1], y.mT, y.unsqueeze(0), y.detach()))(folded(s, x)),
    "one result twice": lambda s, x: (lambda y: [y, y, {"y": y}])(folded(s, x)),
    "parameters": lambda s, x: (s.conv.weight, folded(s, x), s.gain, s.shift, s.conv.weight.data[0]),
    "a residual of a dropout": lambda s, x: (s.drop(x).add_(s.conv(F.relu(x))), x),
    "a view of a parameter": lambda s, x: (folded(s, x), s.gain.T, s.gain.detach(), s.conv.bias[1:]),
    "identity": lambda s, x: (F.dropout(x, 0.5, False), folded(s, x), x.contiguous(), x.to(torch.float32), x.float()),
    "complex neighbours": lambda s, x: torch.complex(folded(s, x), s.other(x)).abs() * torch.exp(1j * x).real,
    "conjugate": lambda s, x: folded(s, torch.complex(x, x * 2).conj().imag),
    "double": lambda s, x: folded(s, x).double() + s.other(x).long(),
    "half and back": lambda s, x: folded(s, x.half().float()).half().sigmoid().float(),
    "booleans": lambda s, x: (folded(s, x) > 0) & (x > 0) | ~(s.other(x) < 1),
    "integers": lambda s, x: (folded(s, x) * 9).int() // 2 + torch.arange(x.shape[-1]),
    "where with a number": lambda s, x: torch.where(s.conv(F.relu(x)) > 0, 1, 2.5),
    "masked": lambda s, x: s.conv(F.relu(x)).masked_fill(x > 0, float("-inf")).exp(),
    "infinities": lambda s, x: (s.conv(F.relu(x / 0)).tanh(), s.conv(x).log(), torch.sqrt(s.other(x))),
    "clamp with nan": lambda s, x: F.relu(s.conv(x / (x > 0))).clamp(min=-1, max=0.5),
    "in place on the input": lambda s, x: folded(s, x.mul_(2)).add_(x),
    "in place on a view": lambda s, x: (x[..., 2:].relu_(), folded(s, x), x.T.zero_() if x.dim() == 2 else None)[:2],
    "in place behind": lambda s, x: (lambda y: (y.neg_(), y.view(-1)[:3].fill_(7), y))(s.conv(F.relu(x, inplace=True))),
    "in place on a saved": lambda s, x: (lambda y: (F.relu(y), y.add_(1), s.other(y)))(s.conv(x)),
    "setitem": lambda s, x: (x.__setitem__((..., 0), 5.0), folded(s, x))[1],
    "resize": lambda s, x: (folded(s, x), x.clone().resize_(3, 2).shape, x.clone().squeeze_().unsqueeze_(0)),
    "data": lambda s, x: (x.data.add_(1), folded(s, x))[1],
    "swap": lambda s, x: (x.copy_(x.flip(-1)), folded(s, x))[1],
    "device context": lambda s, x: (folded(s, x), (torch.device("cpu"), torch.zeros(2, device="meta").shape)),
    "autocast inside": lambda s, x: (lambda c: (c.__enter__(), folded(s, x), c.__exit__(None, None, None))[1])(
        torch.autocast("cpu", torch.bfloat16)),
    "inference inside": lambda s, x: torch.inference_mode()(lambda: folded(s, x))(),
    "checkpoint": lambda s, x: torch.utils.checkpoint.checkpoint(lambda z: folded(s, z), x, use_reentrant=False),
    "vmap": lambda s, x: torch.vmap(lambda z: folded(s, z[None]))(x),
    "jvp": lambda s, x: torch.func.jvp(lambda z: folded(s, z), (x,), (x,)),
    "is_scripting": lambda s, x: folded(s, x) * (2 if torch.jit.is_scripting() or torch.jit.is_tracing() else 3),
    "overridable": lambda s, x: (torch.overrides.has_torch_function((x,)), folded(s, x)),
    "functional": lambda s, x: F.conv1d(F.relu(x), s.conv.weight, s.conv.bias, padding=1, groups=4).sigmoid(),
    "functional with a computed weight": lambda s, x: F.conv1d(F.relu(x), s.conv.weight * s.gain[..., None], groups=4),
    "same weight twice": lambda s, x: s.conv(F.relu(s.conv(F.relu(x)))) + s.conv(x),
    "getattr by name": lambda s, x: getattr(s, ["conv", "other"][x.shape[-1] % 2])(F.relu(x)),
    "items of modules": lambda s, x: {name: part(F.relu(x)) for name, part in s.named_children() if "o" in name},
    "copies": lambda s, x: (copy.copy(folded(s, x)), copy.deepcopy(x)),
    "weakref": lambda s, x: folded(s, weakref.ref(x)()),
    "code of the caller": lambda s, x: (folded(s, x), type(s).__name__, s.training, s._get_name(),
        len(list(s.parameters()))),
    "state_dict": lambda s, x: (folded(s, x), sum(one.sum() for one in s.state_dict().values())),
}  # fmt: skip


def reset(model: Any) -> None:
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", some(FLOW))
def test_control_flow_and_structures(name: str) -> None:
    assert_same_steps(of_forward(FLOW[name], drop=torch.nn.Dropout(0.5)), (12, reset, 9, reset))
