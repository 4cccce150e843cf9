"""sluice.replace: forwards that ask tensors and shapes for values, and what they do beside their results."""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import itertools
import json
import logging
import math
import os
import pathlib
import random
import re
import time
import types
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import sluice
from constructed_faults import marked
from constructed_models import LOG, Forward, assert_same_steps, of_forward, some

pytestmark = pytest.mark.no_gpu


class Mode(enum.Enum):
    SHORT = 9
    LONG = 12


def folded(s: Any, x: torch.Tensor) -> torch.Tensor:
    """What is folded in every case."""
    return torch.tanh(s.conv(F.relu(x)))


# --- values of tensors and of shapes: the result of a length and of an input ------------------------------------------
OF_INPUT: dict[str, Any] = {
    "item": lambda x: x.mean().item(),
    "item of an element": lambda x: x[0, 0, 0].item() > 0,
    "float": lambda x: float(x.mean()),
    "int": lambda x: int(x.sum() * 3),
    "bool": lambda x: "yes" if x.sum() > 0 else "no",
    "tolist": lambda x: x[0, 0].tolist(),
    "len": lambda x: len(x) + len(x[0, 0]),
    "str of device": lambda x: f"{x.device}" + str(x.device),
    "dtype": lambda x: (x.dtype == torch.float32, str(x.dtype), x.dtype is torch.float16),
    "isinstance": lambda x: (isinstance(x, torch.Tensor), isinstance(x, torch.nn.Parameter), type(x).__name__),
    "repr of shape": lambda x: repr(x.shape),
    "repr": lambda x: repr(x),
    "shape": lambda x: x.shape,
    "type of shape": lambda x: (type(x.shape).__name__, type(x.shape[-1]).__name__),
    "strides": lambda x: (x.stride(), x.is_contiguous(), x.storage_offset()),
    "flags": lambda x: (x.requires_grad, x.is_leaf, x.is_inference(), x.grad_fn),
    "data_ptr": lambda x: x.data_ptr() == x[..., 0:].data_ptr(),
    "version": lambda x: (x._version, x.add_(1)._version),
    "numpy": lambda x: x.numpy().sum(axis=(0, 1)),
    "from numpy": lambda x: torch.from_numpy(x.numpy() * 2),
    "asarray": lambda x: np.asarray(x).shape,
    "nonzero": lambda x: x[x > 0],
    "unique": lambda x: torch.unique(x.round()),
    "any": lambda x: bool((x > 2).any()) or bool((x < -2).all()),
    "iteration": lambda x: [row.sum().item() for row in x[:, 0]],
    "unpacking": lambda x: dict(zip("ab", x.unbind(0), strict=True)),
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x + 1e-9),
    "hash": lambda x: hash(x) == id(x),
    "format": lambda x: f"{x.mean():.3f} {x[0, 0, 0]:>9.2f}",
    "complex": lambda x: torch.view_as_real(torch.fft.rfft(x) * 1j),
    "complex result": lambda x: torch.complex(x, -x).conj(),
    "topk": lambda x: x.topk(min(3, x.shape[-1])),
    "std_mean": lambda x: torch.std_mean(x, dim=-1, keepdim=True),
    "sparse": lambda x: F.relu(x[0]).to_sparse(),
    "clone of expanded": lambda x: x[:1].expand(3, -1, -1),
    "as_strided": lambda x: x.as_strided((2, 3), (4, 1)),
    "flipped": lambda x: x.flip(-1)[..., ::2],
    "chunks": lambda x: x.chunk(3, dim=-1),
}
OF_LENGTH: dict[str, Any] = {
    "the length": lambda n: n,
    "sqrt": lambda n: math.sqrt(n),
    "power": lambda n: n**0.5,
    "quotient": lambda n: n / 7,
    "divmod": lambda n: (divmod(n, 5), -n % 5, -n // 5),
    "log2": lambda n: math.log2(n),
    "bits": lambda n: (n & 3, n << 1, n ^ 5, ~n, n.bit_length()),
    "float and complex": lambda n: (float(n), complex(n), int(n), bool(n)),
    "round": lambda n: (round(n / 7, 2), math.ceil(n / 7), math.floor(-n / 7), math.gcd(n, 6)),
    "str": lambda n: str(n) + f"{n:04d}" + repr(n),
    "json": lambda n: json.dumps({"n": n}),
    "in": lambda n: n in (9, 10),
    "is": lambda n: n is None,
    "isinstance": lambda n: (isinstance(n, int), isinstance(n, torch.SymInt), type(n) is int),
    "list": lambda n: [0] * n,
    "range": lambda n: list(range(0, n, 3)),
    "dict": lambda n: {9: "short", 12: "long"}[n],
    "dict.get": lambda n: {12: "long"}.get(n, "none"),
    "index": lambda n: "abcdefghijklmnop"[n],
    "set": lambda n: sorted({n, 12, 9}),
    "hash": lambda n: hash((n, "x")),
    "min and max": lambda n: (min(n, 10), max(n, 10), sum([n, 1]), abs(-n)),
    "bytes": lambda n: n.to_bytes(2, "big"),
    "enum": lambda n: Mode(n).name,
    "arange": lambda n: torch.arange(n).float() / n,
    "numpy": lambda n: np.linspace(0, 1, n),
    "zeros": lambda n: torch.zeros(n, n).tril().sum(-1),
    "Size": lambda n: torch.Size([n, 2]),
    "slice": lambda n: slice(0, n),
    "tensor": lambda n: torch.tensor([n, 2 * n]),
    "window": lambda n: torch.hann_window(n),
    "compare": lambda n: n > 10 and n % 2 == 0,
    "match": lambda n: re.match(r"\d", str(n)) is not None,
    "partial": lambda n: functools.partial(pow, n)(2),
    "next": lambda n: next(i for i in range(100) if 2**i > n),
}


def in_groups(names: Iterable[str], size: int) -> list[list[str]]:
    """Each trace takes time, so several share one."""
    names = list(names)
    return [names[i : i + size] for i in range(0, len(names), size)]


WITHOUT_VERSION = [name for name in OF_INPUT if name != "version"]


@pytest.mark.parametrize("names", some(in_groups(WITHOUT_VERSION, 3)), ids=" and ".join)
def test_values_of_inputs(names: list[str]) -> None:
    made = [OF_INPUT[name] for name in names]
    assert_same_steps(of_forward(lambda s, x: (folded(s, x), [one(x) for one in made])), (12, 9))


@pytest.mark.xfail(reason="Dynamo reads the version after the writes of the call", strict=True)
def test_a_version_before_a_write() -> None:
    test_values_of_inputs(["version"])


@pytest.mark.parametrize(
    "name", ["item", "bool", "tolist", "numpy", "version", "nonzero", "strides", "chunks", "sparse"]
)
def test_values_of_results_of_convolutions(name: str) -> None:
    made = OF_INPUT[name]

    def forward(s: Any, x: torch.Tensor) -> Any:
        y = folded(s, x)
        return s.other(F.relu(y)), made(y)

    assert_same_steps(of_forward(forward))


@pytest.mark.parametrize("names", some(in_groups(OF_LENGTH, 4)), ids=" and ".join)
def test_values_of_lengths(names: list[str]) -> None:
    made = [OF_LENGTH[name] for name in names]
    assert_same_steps(of_forward(lambda s, x: (folded(s, x), [one(x.shape[-1]) for one in made])), (12, 9, 12))


# --- side effects -----------------------------------------------------------------------------------------------------
TABLE: dict[Any, Any] = {}
counter, context = 0, contextvars.ContextVar("context", default=0)


def global_counter(s: Any, x: torch.Tensor) -> Any:
    global counter
    counter += 1
    LOG.append(counter)
    return folded(s, x) * counter


def mutable_default(s: Any, x: torch.Tensor, seen: list[int] = []) -> Any:  # noqa: B006
    seen.append(x.shape[-1])
    return folded(s, x) * len(seen), list(seen)


def of_context(s: Any, x: torch.Tensor) -> Any:
    token = context.set(context.get() + x.shape[-1])
    y = folded(s, x) * context.get()
    context.reset(token)
    return y, context.get()


def logs(s: Any, x: torch.Tensor) -> Any:
    logging.getLogger("constructed").warning("length %d", x.shape[-1])
    print("printed", x.shape, end=";")
    warnings.warn(f"warned of {x.shape[-1]}", FutureWarning, stacklevel=2)
    return folded(s, x)


def counts(s: Any, x: torch.Tensor) -> Any:
    s.count += 1
    s.lengths[x.shape[-1]] += 1
    s.last.append(x.shape[-1])
    s.names.add(str(x.dtype))
    s.deep.inner["n"] = s.count
    y = folded(s, x) * s.count
    s.kept.append(y)
    return y


@functools.lru_cache
def cached(length: int) -> torch.Tensor:
    LOG.append(("cached", length))
    return torch.linspace(0, 1, length)


def clocks(s: Any, x: torch.Tensor) -> Any:
    start = time.perf_counter()
    y = folded(s, x)
    LOG.append((time.perf_counter() > start, time.time() > s.time, s.__dict__.update(time=time.time())))
    return y


EFFECTS: dict[str, tuple[Forward, dict[str, Any]]] = {
    "counts": (counts, {
        "count": 0, "lengths": collections.defaultdict(int), "last": collections.deque(maxlen=2), "names": set(),
        "deep": types.SimpleNamespace(inner={}), "kept": [],
    }),
    "context variable": (of_context, {}),
    "prints, logs and warns": (logs, {}),
    "lru_cache": (lambda s, x: folded(s, x) * cached(x.shape[-1]), {}),
    "a cache on self": (lambda s, x: s.table.setdefault(x.shape[-1], folded(s, x)), {"table": {}}),
    "an if of a cache": (lambda s, x: s.table[x.shape[-1]] if x.shape[-1] in s.table else s.table.setdefault(
        x.shape[-1], folded(s, x)), {"table": {9: 1}}),
    "the last result": (lambda s, x: (s.__setattr__("last", folded(s, x + s.last)), s.last)[1], {"last": 0}),
    "the last input": (lambda s, x: (folded(s, x), s.__dict__.update(last=x), s.last)[2], {"last": None}),
    "an iterator": (lambda s, x: folded(s, x) * next(s.count), {"count": itertools.count(1)}),
    "a list's pop": (lambda s, x: folded(s, x) * s.todo.pop(), {"todo": [1.0, 2.0, 3.0]}),
    "a list's sort": (lambda s, x: (s.todo.append(x.shape[-1]), s.todo.sort(), folded(s, x) * s.todo[1])[2],
        {"todo": [10]}),
    "python's random": (lambda s, x: folded(s, x) * random.random() + random.randint(0, 9), {}),
    "numpy's random": (lambda s, x: folded(s, x) * float(np.random.RandomState(3).rand()), {}),
    "a random layer": (lambda s, x: folded(s, x) if random.random() < 0.5 else s.other(F.relu(x)), {}),
    "a buffer in place": (lambda s, x: (s.shift.add_(1), folded(s, x) + s.shift)[1], {}),
    "a buffer replaced": (lambda s, x: (s.__setattr__("shift", s.shift * 2), folded(s, x) + s.shift)[1], {}),
    "a running mean": (lambda s, x: (s.shift.lerp_(folded(s, x).mean((0, 2))[:, None], 0.1), x - s.shift)[1], {}),
    "a parameter in place": (lambda s, x: (s.conv.weight.mul_(2), folded(s, x))[1], {}),
    "a parameter's data": (lambda s, x: (s.conv.weight.data.mul_(2), folded(s, x))[1], {}),
    "a parameter in between": (lambda s, x: (folded(s, x), s.conv.weight.mul_(2), folded(s, x)), {}),
    "a kept computed weight": (lambda s, x: (s.gain.mul_(2), F.conv1d(x, s.conv.weight * s.gain[..., None],
        groups=4))[1], {}),
    "a flag": (lambda s, x: (s.__setattr__("on", not s.on), folded(s, x) if s.on else x)[1], {"on": False}),
    "a new attribute": (lambda s, x: (hasattr(s, "new"), s.__setattr__("new", x.shape[-1]), folded(s, x))[::2], {}),
    "a deleted attribute": (lambda s, x: (hasattr(s, "old"), s.__dict__.pop("old", 0), folded(s, x)), {"old": 3}),
    "a float that grows": (lambda s, x: (s.__setattr__("slope", s.slope * 1.5), F.leaky_relu(s.conv(x), s.slope))[1],
        {}),
    "environment": (lambda s, x: folded(s, x) * float(os.environ.get("CONSTRUCTED", "2")), {}),
    "files": (lambda s, x: (folded(s, x), os.path.exists("/"), pathlib.Path(os.devnull).read_text()), {}),
    "clocks": (clocks, {"time": 0.0}),
    "a registered buffer": (lambda s, x: (s.register_buffer("late", x.mean()), folded(s, x) * s.late)[1], {}),
    "a registered module": (lambda s, x: (s.add_module("late", torch.nn.Tanh()), s.late(s.conv(x)))[1], {}),
    "a swapped module": (lambda s, x: (s.__dict__["_modules"].update(conv=s.other, other=s.conv), folded(s, x))[1], {}),
    "train inside": (lambda s, x: (s.train(not s.training), folded(s, x), s.act.training), {}),
    "requires_grad inside": (lambda s, x: (folded(s, x), s.gain.requires_grad_(not s.gain.requires_grad))[0], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", marked(some(EFFECTS), "side effects"))
def test_side_effects(name: str) -> None:
    forward, attributes = EFFECTS[name]
    assert_same_steps(of_forward(forward, **attributes), (lambda m: cached.cache_clear(), 12, 9, 9))


@pytest.mark.parametrize("forward", [global_counter, mutable_default])
def test_side_effects_outside_the_model(forward: Any) -> None:
    """Eager's and the replaced model's calls take turns at one global value."""
    global counter
    model, twin = of_forward(forward), of_forward(forward)
    sluice.replace(model)
    x = torch.randn(2, 4, 12)
    with torch.no_grad():
        for expected in range(1, 6, 2):
            counter = expected - 1
            one, other = twin(x), model(x)
            if forward is global_counter:
                assert counter == expected + 1
                torch.testing.assert_close(one / expected, other / (expected + 1))
            else:
                torch.testing.assert_close(one[0] / expected, other[0] / (expected + 1))
                assert len(other[1]) == expected + 1
