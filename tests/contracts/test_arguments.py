"""Arguments besides tensors: NumPy's numbers, chains as text, lists of many tensors; refusals are in
sluice's wording."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import sluice
from sluice import stages

INTEGERS = [np.int64, np.int32, np.uint8]
FLOATS = [np.float16, np.float32, np.float64, np.longdouble]


def integer_calls(device: str) -> dict[str, Callable[[Callable[[int], Any]], object]]:
    """name -> a call of a function that makes integers of integers."""
    x, w, kernel = torch.randn(2, 6, 20), torch.randn(6, 1, 3), torch.randn(3, 3)
    x, w, kernel = x.to(device), w.to(device), kernel.to(device)
    silu = stages.silu()
    return {
        "stride": lambda n: sluice.conv1d(x, w, groups=6, stride=n(2)),
        "strides": lambda n: sluice.conv1d(x, w, groups=6, stride=(n(2),)),
        "padding": lambda n: sluice.conv1d(x, w, groups=6, padding=n(1)),
        "dilation": lambda n: sluice.conv1d(x, w, groups=6, dilation=n(2)),
        "groups": lambda n: sluice.conv1d(x, w, groups=n(6)),
        "a transposed stride": lambda n: sluice.conv_transpose1d(x, w, groups=6, stride=n(2)),
        "transposed numbers": lambda n: sluice.conv_transpose1d(x, w, None, 3, (n(1),), n(2), n(6), [n(2)]),
        "depth": lambda n: sluice.transform(x, silu, depth=n(2)),
        "conv1d's depth": lambda n: sluice.conv1d(x, w, groups=6, depth=n(2)),
        "a dense causal_conv1d's numbers": lambda n: sluice.causal_conv1d(
            x, w, stride=n(2), groups=n(6), dilation=n(2), state_cache=x[..., :4].clone(), pad_slot_id=n(3),
            null_slot_id=n(0)
        ),
        "causal_conv_transpose1d's numbers": lambda n: sluice.causal_conv_transpose1d(
            x, w, stride=n(2), groups=n(6), dilation=n(2), overlap_cache=torch.zeros_like(x), pad_slot_id=n(3),
            null_slot_id=n(0)
        ),
        "causal_conv_transpose1d's depth": lambda n: sluice.causal_conv_transpose1d(
            x, w, stride=n(1), groups=n(6), depth=n(2)
        ),
        "causal_conv1d's depth": lambda n: sluice.causal_conv1d(x, w[:, 0], depth=n(2)),
        "filter2d's depth": lambda n: sluice.filter2d(x, kernel, depth=n(2)),
        "filter2d's padding": lambda n: sluice.filter2d(x, kernel, padding=(n(1), n(0))),
        "plan": lambda n: sluice.plan("conv1d", x, w, stride=n(1), groups=n(6), depth=n(2)).grid,
        "scale": lambda n: stages.scale(n(2))(x),
        "chunk_size": lambda n: sluice.stream_map(silu, x, chunk_size=n(1)),
        "dim": lambda n: sluice.stream_map(silu, x, dim=n(1)),
        "slots": lambda n: sluice.stream_map(silu, x, depth=n(2), halo=n(0)),
        "stream_iter": lambda n: torch.stack(list(sluice.stream_iter(silu, list(x), depth=n(2)))),
    }  # fmt: skip


@pytest.mark.parametrize("name", integer_calls("cpu"))
@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.__name__)
def test_integers_of_numpy(device: str, name: str, kind: type) -> None:
    call = integer_calls(device)[name]
    result, wanted = call(kind), call(int)
    assert torch.equal(torch.as_tensor(result), torch.as_tensor(wanted))


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS], ids=lambda kind: kind.__name__)
def test_numbers_of_numpy_in_stages(device: str, kind: type) -> None:
    x = torch.randn(5, device=device)
    made = [stages.scale(kind(3)), stages.snake(kind(3), eps=kind(0)), stages.clamp(kind(0), kind(2))]
    wanted = [stages.scale(3.0), stages.snake(3.0, eps=0.0), stages.clamp(0.0, 2.0)]
    assert made == wanted
    assert repr(made[0]) in ("scale(3.0)", "scale(3)")
    assert all(torch.equal(a(x), b(x)) for a, b in zip(made, wanted, strict=True))
    assert stages.scale(np.float32(0.1)).text == f"scale({float(np.float32(0.1))!r})"
    own = [stages.cpp("x * a", a=a, reference=lambda x, a: x * a) for a in (kind(2), 2.0)]
    assert torch.equal(own[0](x), own[1](x))


def test_numbers_of_numpy_in_a_chain_of_compiled_code(device: str) -> None:
    chain, x = stages.scale(np.float32(1.5)) | stages.silu(), torch.randn(20, device=device)
    assert torch.equal(torch.compile(lambda x: chain(x), fullgraph=True)(x), chain(x))


def wrong_types() -> dict[str, tuple[str, Callable[[], object]]]:
    """name -> (the message, a call that gets it)."""
    x, w = torch.randn(2, 6, 20), torch.randn(6, 1, 3)
    conv, causal, silu = sluice.conv1d, sluice.causal_conv1d, stages.silu()
    calls: dict[str, tuple[str, Callable[[], object]]] = {
        "groups": ("conv1d: groups must be an int, got float", lambda: conv(x, w, groups=6.0)),
        "a bool": ("conv1d: groups must be an int, got bool", lambda: conv(x, w, groups=True)),
        "a causal stride": (
            "causal_conv1d: stride must be an int, got float",
            lambda: causal(x, w, groups=6, stride=2.0),
        ),
        "causal groups": ("causal_conv1d: groups must be an int, got str", lambda: causal(x, w, groups="6")),
        "a causal, transposed stride": (
            "causal_conv_transpose1d: stride must be an int, got bool",
            lambda: sluice.causal_conv_transpose1d(x, w, stride=True, groups=6),
        ),
        "a causal, transposed bias": (
            "causal_conv_transpose1d: bias must be a torch.Tensor, got list",
            lambda: sluice.causal_conv_transpose1d(x, w, [1.0], stride=1, groups=6),
        ),
        "output_padding": (
            "conv_transpose1d: output_padding must be an int, got str",
            lambda: sluice.conv_transpose1d(x, w, groups=6, output_padding="1"),
        ),
        "depth": ("conv1d: depth must be an int, got str", lambda: conv(x, w, groups=6, depth="2")),
        "schedule": ("conv1d: schedule must be a string, got NoneType", lambda: conv(x, w, groups=6, schedule=None)),
        "dtype": ("transform: dtype must be a torch.dtype, got str", lambda: silu(x, dtype="float32")),
        "post": (
            "conv1d: post must be a chain or the text of one, got .*",
            lambda: conv(x, w, groups=6, post=torch.relu),
        ),
        "pre": (
            "filter2d: pre must be a chain or the text of one, got list",
            lambda: sluice.filter2d(x, w[:, 0], pre=[silu]),
        ),
        "causal post": (
            "causal_conv1d: post must be a chain or the text of one, got int",
            lambda: causal(x, w[:, 0], post=3),
        ),
        "chain": (
            "transform: chain must be a chain or a list of chains, got NoneType",
            lambda: sluice.transform(x, None),
        ),
        "list": (
            "transform: a chain of a list must be a chain or the text of one, got int",
            lambda: sluice.transform(x, [silu, 3]),
        ),
        "outs": (
            "transform: out must be a list of tensors for a list of chains, got int",
            lambda: sluice.transform(x, [silu], out=3),
        ),
        "bias": ("conv1d: bias must be a torch.Tensor, got list", lambda: conv(x, w, [1.0], groups=6)),
        "causal bias": ("causal_conv1d: bias must be a torch.Tensor, got list", lambda: causal(x, w[:, 0], [1.0])),
        "an image's bias": (
            "filter2d: bias must be a torch.Tensor, got ndarray",
            lambda: sluice.filter2d(x, w[:, 0], np.ones(6)),
        ),
        "states": (
            "causal_conv1d: initial_states must be a torch.Tensor, got ndarray",
            lambda: causal(x, w[:, 0], initial_states=np.ones((2, 6, 2))),
        ),
        "activation": (
            "causal_conv1d: activation must be None, a bool or a string, got list",
            lambda: causal(x, w[:, 0], activation=["silu"]),
        ),
        "name of a stage": ("cpp: name must be a string, got int", lambda: stages.cpp("x", name=3)),
        "reference": ("cpp: reference must be a function, got int", lambda: stages.cpp("x", reference=3)),
        "cast": ("cast: dtype must be .*, got \\[\\]", lambda: stages.cast([])),
    }
    return calls


@pytest.mark.parametrize("name", wrong_types())
def test_a_wrong_type_is_named(name: str) -> None:
    text, call = wrong_types()[name]
    with pytest.raises(TypeError, match=f"^{text}$"):
        call()


def test_a_number_that_torch_cannot_hold() -> None:
    x, w = torch.randn(2, 6, 20), torch.randn(6, 1, 3)
    with pytest.raises(ValueError, match=r"conv1d: padding must be less than 2\^63, got 9223372036854775808"):
        sluice.conv1d(x, w, groups=6, padding=1 << 63)


def test_chains_as_text(device: str) -> None:
    x, w, y = torch.randn(2, 6, 20), torch.randn(6, 1, 3), torch.randn(6, 1)
    x, w, y = x.to(device), w.to(device), y.to(device)
    chain = stages.scale(2.0) | stages.gelu() | stages.cast(torch.float16)
    for text in ("scale(2)|gelu|cast(float16)", chain.text):
        assert torch.equal(sluice.transform(x, text), chain(x))
        for one in sluice.transform(x, [text, chain]):
            assert torch.equal(one, chain(x))
        assert torch.equal(sluice.conv1d(x, w, groups=6, pre="relu", post=text),
                           sluice.conv1d(x, w, groups=6, pre=stages.relu(), post=chain))  # fmt: skip
        assert torch.equal(sluice.filter2d(x, w[0], pre="relu", post=text),
                           sluice.filter2d(x, w[0], pre=stages.relu(), post=chain))  # fmt: skip
    causal = functools.partial(sluice.causal_conv1d, x, w[:, 0], residual=y, activation="silu")
    assert torch.equal(causal(post="scale(2)|gelu"), causal(post=stages.scale(2) | stages.gelu()))
    assert torch.equal(sluice.transform(x, ""), x)
    assert torch.equal(sluice.conv1d(x, w, groups=6, post=""), sluice.conv1d(x, w, groups=6))
    compiled = torch.compile(lambda x: sluice.conv1d(x, w, groups=6, post="gelu"), fullgraph=True)
    assert torch.equal(compiled(x), sluice.conv1d(x, w, groups=6, post="gelu"))


def test_a_text_beside_a_chain_that_only_a_reference_computes() -> None:
    soft = stages.cpp("x * a", a=2.0, reference=lambda x, a: x * a)
    x, w = torch.randn(2, 6, 20).bfloat16(), torch.randn(6, 1, 3).bfloat16()
    result = sluice.conv1d(x, w, groups=6, pre=soft, post="scale(2)|cast(float16)")
    wanted = sluice.conv1d(x, w, groups=6, pre=soft, post=stages.scale(2) | stages.cast(torch.float16))
    assert torch.equal(result, wanted)


def test_a_text_that_is_no_chain(device: str) -> None:
    x, w = torch.randn(2, 6, 20, device=device), torch.randn(6, 1, 3, device=device)
    with pytest.raises(ValueError, match="conv1d: post must be a chain of stages: unknown stage 'frobnicate'"):
        sluice.conv1d(x, w, groups=6, post="frobnicate")
    with pytest.raises(ValueError, match=r"causal_conv1d: post must be composed .*, got 'mul\(\$0\)'"):
        sluice.causal_conv1d(x, w[:, 0], residual=x, post="mul($0)")
