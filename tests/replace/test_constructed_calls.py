"""sluice.replace: arguments, layouts, dtypes, modes, threads and gradients of calls, and errors that calls raise."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from constructed_models import LOG, Base, Step, assert_same_steps, depthwise, of_forward, some, x_of
from constructed_steps import SHORT, X, backward, folded, given, within

pytestmark = pytest.mark.no_gpu


# --- arguments --------------------------------------------------------------------------------------------------------
def optional(
    s: Any, x: torch.Tensor, cache: torch.Tensor | None = None, scale: float = 1.0, *more: Any, **named: Any
) -> Any:
    y = folded(s, x) * scale
    if cache is not None:
        y = y + cache
    for one in more:
        y = y + one
    return {"y": y, **{name: one if one is None else one * 2 for name, one in named.items()}}


def nested(s: Any, batch: dict[str, Any]) -> Any:
    batch["seen"] = batch.get("seen", 0) + 1
    batch["list"].append(folded(s, batch["x"]))
    return batch, batch["list"]


class Text(str):
    """A string of a class of its own."""


ARGUMENTS: dict[str, tuple[Any, tuple[Step, ...]]] = {
    "optional": (optional, (12, given(X, X), given(X, lambda: None), given(SHORT, cache=SHORT))),
    "numbers": (optional, (given(X, lambda: None, lambda: 2.0), given(X, lambda: None, lambda: 3.0), given(X,
        scale=lambda: 3))),
    "many numbers": (optional, tuple(given(X, scale=lambda n=n: n / 8) for n in range(6))),
    "bools": (optional, (given(X, scale=lambda: True), given(X, scale=lambda: 1), given(X, scale=lambda: 1.0))),
    "special numbers": (optional, (given(X, scale=lambda: 0.0), given(X, scale=lambda: -0.0), given(X,
        scale=lambda: float("nan")))),
    "a tensor as a number": (optional, (given(X, scale=lambda: 2.0), given(X, scale=lambda: torch.tensor(2.0)))),
    "more": (optional, (given(X, X, lambda: 1.0, X), given(X, X, lambda: 1.0, X, X), given(X, X, lambda: 1.0))),
    "named": (optional, (given(X, a=X, b=lambda: 2), given(X, b=lambda: 2, a=X), given(X, a=lambda: None,
        c=lambda: "t"))),
    "the wrong ones": (optional, (12, lambda m: m(), lambda m: m(y=3), lambda m: m(None), lambda m: m("text"))),
    "by name": (optional, (given(x=X), given(x=SHORT, cache=lambda: None))),
    "nested": (nested, (given(lambda: {"x": x_of(12), "list": []}), given(lambda: {"x": x_of(9), "list": [1],
        "seen": 4}))),
    "a string": (lambda s, x, name: getattr(s, name)(F.relu(x)), tuple(
        given(X, lambda name=name: name) for name in ("conv", "other", Text("conv"), "act", "none"))),
    "a function": (lambda s, x, f: f(folded(s, x)), (given(X, lambda: torch.relu), given(X, lambda: lambda y: y * 2))),
    "a module": (lambda s, x, f: f(folded(s, x)), (given(X, nn.ReLU), given(X, nn.Tanh), given(X, depthwise))),
    "a dtype": (lambda s, x, t: folded(s, x).to(t), (given(X, lambda: torch.float16), given(X, lambda: torch.float64))),
    "a length": (lambda s, x, n: folded(s, x)[..., :n], (given(X, lambda: 3), given(X, lambda: 5), given(X,
        lambda: -1))),
    "a size": (lambda s, x, n: folded(s, x).view(n), (given(X, lambda: (8, 12)), given(X, lambda: [96]), given(X,
        lambda: -1))),
    "a set": (lambda s, x, n: folded(s, x) * len(n), (given(X, lambda: {1, 2}), given(X, lambda: {3}))),
    "an object": (lambda s, x, one: one.__dict__.update(y=folded(s, x) * one.n), (given(X, lambda: type("O", (),
        {})()),)),
    "the same tensor twice": (lambda s, x, y: (x.add_(1), folded(s, y)), (given(X, X), lambda m: (lambda x: m(x,
        x))(x_of(12)))),
    "views of one tensor": (lambda s, x, y: (x.add_(1), folded(s, y)), (
        given(X, X), lambda m: (lambda x: m(x[..., :9], x[..., 3:]))(x_of(12)))),
    "a parameter as an input": (lambda s, x: (folded(s, x), x), (12, lambda m: m(m.conv.weight.view(1, 4, 3)))),
    "the weight of the model in place": (lambda s, x, w: (w.mul_(2), folded(s, x)), (lambda m: m(x_of(12),
        m.conv.weight),) * 2),
    "an iterator": (lambda s, parts: [folded(s, x) for x in parts], (given(lambda: iter([x_of(12), x_of(9)])),) * 2),
    "a generator": (lambda s, parts: sum(folded(s, x) for x in parts),
        (lambda m: m(x_of(9) * i for i in range(3)),) * 2),
}  # fmt: skip


@pytest.mark.parametrize("name", some(ARGUMENTS))
def test_arguments(name: str) -> None:
    forward, steps = ARGUMENTS[name]
    assert_same_steps(of_forward(forward), steps)


# --- layouts and dtypes of inputs -------------------------------------------------------------------------------------
class Tagged(torch.Tensor):
    """A subclass without a dispatch of its own."""


class Noted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.leaky_relu, F.conv1d, F.relu, torch.Tensor.mul, torch.Tensor.add):
            LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


LAYOUTS: dict[str, Callable[[], Any]] = {
    "channels last": lambda: x_of(12).transpose(1, 2).contiguous().transpose(1, 2),
    "permuted": lambda: torch.randn(4, 12, 2, generator=torch.Generator().manual_seed(1)).permute(2, 0, 1),
    "expanded": lambda: x_of(12)[:1, :1].expand(2, 4, -1),
    "expanded length": lambda: x_of(1).expand(2, 4, 12),
    "negative": lambda: torch.complex(x_of(12), x_of(12)).conj().imag,
    "real of complex": lambda: torch.complex(x_of(12), x_of(9)[..., :1]).real,
    "strided": lambda: x_of(24)[..., ::2],
    "with an offset": lambda: x_of(14)[..., 1:-1],
    "overlapping": lambda: x_of(12).flatten().as_strided((2, 4, 9), (9, 3, 1)),
    "no length": lambda: x_of(0),
    "no batch": lambda: x_of(12, batch=0),
    "batch 1": lambda: x_of(12, batch=1),
    "batch 3": lambda: x_of(12, batch=3),
    "batch 1, length 1": lambda: x_of(1, batch=1),
    "unbatched": lambda: x_of(12)[0],
    "unbatched, length 4": lambda: x_of(4)[0],
    "4 of all": lambda: x_of(4, batch=4),
    "float64": lambda: x_of(12).double(),
    "bfloat16": lambda: x_of(12).bfloat16(),
    "integers": lambda: x_of(12).long(),
    "complex": lambda: x_of(12) * 1j,
    "bool": lambda: x_of(12) > 0,
    "3 channels": lambda: x_of(12)[:, :3],
    "5 dimensions": lambda: x_of(12)[None, None],
    "1 dimension": lambda: x_of(12)[0, 0],
    "meta": lambda: x_of(12).to("meta"),
    "sparse": lambda: x_of(12).to_sparse(),
    "numpy": lambda: x_of(12).numpy(),
    "a list": lambda: x_of(3).tolist(),
    "a parameter": lambda: nn.Parameter(x_of(12)),
    "requires grad": lambda: x_of(12).requires_grad_(),
    "of inference mode": lambda: torch.inference_mode()(lambda: x_of(12) * 2)(),
    "a subclass": lambda: x_of(12).as_subclass(Tagged),
    "a subclass that notes": lambda: x_of(12).as_subclass(Noted),
    "infinite": lambda: x_of(12) / 0,
    "long": lambda: x_of(5000),
}  # fmt: skip


def neighbours(s: Any, x: torch.Tensor) -> Any:
    y = s.act(x)
    return s.other(F.relu(s.conv(y)) * 2) + x, y


@pytest.mark.parametrize("name", some(LAYOUTS))
def test_layouts(name: str) -> None:
    step = given(LAYOUTS[name])
    assert_same_steps(of_forward(neighbours), (step, 12, step))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    step = given(lambda: x_of(12).to(dtype))
    assert_same_steps(of_forward(neighbours).to(dtype), (step, step, given(lambda: x_of(9).to(dtype)), 12))


# --- modes ------------------------------------------------------------------------------------------------------------
def frozen_backward(model: Any) -> Any:
    model.requires_grad_(False)
    try:
        return backward(model)
    finally:
        model.requires_grad_(True)


def trained(model: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        backward(model)
        optimizer.step()
    return model(x_of(12))


def with_default_dtype(model: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return model(x_of(12)), model(x_of(9)) if model.training else None
    finally:
        torch.set_default_dtype(torch.float32)


def deterministic(model: Any) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return model(x_of(12))
    finally:
        torch.use_deterministic_algorithms(False)


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


MODES: dict[str, tuple[Step, ...]] = {
    "inference mode": (12, within(torch.inference_mode), 12),
    "inference mode first": (within(torch.inference_mode), 12, backward),
    "enable_grad": (12, within(torch.enable_grad), 12),
    "backward": (12, backward, 12, backward),
    "backward first": (backward, 12, trained),
    "trained": (12, trained, 9),
    "frozen": (12, frozen_backward, 12),
    "frozen first": (frozen_backward, 12, backward),
    "autocast": (12, within(autocast), 12),
    "autocast first": (within(autocast), 12, within(autocast)),
    "autocast with bfloat16": (within(autocast, lambda: x_of(12).bfloat16()), 12),
    "no autocast": (12, within(lambda: torch.autocast("cpu", enabled=False)), 12),
    "train": (lambda m: m.train(), 12, backward, lambda m: m.eval(), 12),
    "a default dtype": (12, with_default_dtype, 12),
    "a default dtype first": (with_default_dtype, 12),
    "a device": (12, within(lambda: torch.device("meta")), 12),
    "deterministic": (12, deterministic),
    "vmap": (12, lambda m: torch.vmap(m)(torch.stack([x_of(12), x_of(12)])), 12),
    "grad": (12, lambda m: torch.func.grad(lambda x: m(x)[0].sum())(x_of(12)), 12),
    "jvp": (12, lambda m: torch.func.jvp(m, (x_of(12),), (x_of(12),)), 12),
    "compile": (12, lambda m: torch.compile(m, backend="eager")(x_of(12)), 12),
    "fx": (12, lambda m: torch.fx.symbolic_trace(m)(x_of(12)), 12),
    "export": (12, lambda m: torch.export.export(m, (x_of(12),)).module()(x_of(12)), 12),
    "a functional call's stack": (12, lambda m: torch.func.functional_call(
        m, {k: v + 1 for k, v in m.state_dict().items()}, x_of(12)), 12),
}  # fmt: skip


def dropped(s: Any, x: torch.Tensor) -> Any:
    x = s.norm(F.dropout(x, 0.3, s.training))
    return folded(s, x) + s.other(s.drop(x)) + torch.ones(1) * s.gain, x


@pytest.mark.parametrize("name", some(MODES))
def test_modes(name: str) -> None:
    assert_same_steps(of_forward(dropped, drop=nn.Dropout(0.2), norm=nn.BatchNorm1d(4)), MODES[name])


@pytest.mark.parametrize(
    "decorator",
    [torch.no_grad(), torch.inference_mode(), torch.enable_grad(), autocast()],
    ids=lambda one: type(one).__name__,
)
def test_decorated_forwards(decorator: Any) -> None:
    forward = decorator(lambda s, x: (folded(s, x), torch.is_grad_enabled()))
    assert_same_steps(of_forward(forward), (12, 9, backward))


def test_dynamo_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    """Forwards with a cache or a clock have no warning of their own."""
    import functools
    import time

    cached = functools.lru_cache(lambda length: length * 2)
    for forward in (lambda s, x: folded(s, x) * cached(x.shape[-1]), lambda s, x: (folded(s, x), time.perf_counter())):
        sluice.replace(of_forward(forward)).trace(x_of(12))
    assert [str(one.message).partition("\n")[0] for one in recwarn if "Dynamo" in str(one.message)] == []


# --- threads ----------------------------------------------------------------------------------------------------------
def counting(s: Any, x: torch.Tensor) -> Any:
    if x.mean().item() > 9:
        return x
    return folded(s, x) * x.shape[-1]


@pytest.mark.parametrize("forward", [neighbours, counting, folded])
@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_threads(forward: Any, is_warm: bool) -> None:
    model = of_forward(forward)
    twin, copied = copy.deepcopy(model), copy.deepcopy(model)
    for one in (model, copied):
        sluice.replace(one)
    barrier = threading.Barrier(4)

    def work(place: int) -> list[Any]:
        ours = model if place % 2 else copied
        barrier.wait()
        with torch.no_grad():
            return [ours(x_of(length)) for length in range(5 + place, 40, 4)]

    with torch.no_grad():
        if is_warm:
            model(x_of(12))
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(work, range(4)))
        for place, found in enumerate(results):
            for length, one in zip(range(5 + place, 40, 4), found, strict=True):
                torch.testing.assert_close(one, twin(x_of(length)))


def test_threads_with_modes() -> None:
    """One thread trains while another one infers."""
    model = of_forward(folded)
    twin = copy.deepcopy(model)
    sluice.replace(model)

    def work(wants: bool) -> bool:
        with torch.set_grad_enabled(wants):
            return all(model(x_of(length)).requires_grad is wants for length in range(5, 25))

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, [True, False, True, False]))
    with torch.no_grad():
        torch.testing.assert_close(model(x_of(12)), twin(x_of(12)))


# --- many models ------------------------------------------------------------------------------------------------------
class Broken(Base):
    """A forward with a graph break: its code is one for all models."""

    def forward(self, x: torch.Tensor) -> Any:
        y = self.conv(F.leaky_relu(x, self.slope))
        LOG.append(y.sum().item() > 0)
        return self.other(F.relu(y)) * self.slope


def test_many_models_of_one_class() -> None:
    for place in range(5):
        assert_same_steps(Broken(slope=place / 20).eval(), (12,))


def test_nested_models() -> None:
    inner = nn.ModuleList(Broken(slope=place / 10) for place in range(3))
    assert_same_steps(of_forward(lambda s, x: [s.conv(F.relu(part(x))) for part in s.inner], inner=inner), (12, 9))
