"""What the functions refuse before anything is sent, with every message, and how the package is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import first_calls
import pytest
import torch
import torch.distributed as dist
from ranks import Ranks

import sluice
import sluice.distributed
from common import NAN
from python_process import python
from sluice import _call, stages
from sluice.distributed.arguments import Accepted, key_of

pytestmark = pytest.mark.no_gpu


ADD = Accepted.add


class Tagged(torch.Tensor):
    """A subclass, whose rules no check knows."""


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


X, W = torch.zeros(2, 4, 5), torch.zeros(4, 4, 3)
TAPS = torch.zeros(4, 3)
CONV: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dim": "batch"}, ValueError, "dim must be 'sequence': batch and channels need no communication, got 'batch'"),
    ({"x_local": [1.0]}, TypeError, "x_local must be a torch.Tensor, got list"),
    ({"x_local": X.to_sparse()}, ValueError, "x_local must have memory of its own, got a tensor without storage"),
    ({"x_local": X.int()}, TypeError, "input must have dtype float32, float16, bfloat16 or float64, got int32"),
    ({"pre": stages.mul(X.to_sparse())}, ValueError, "pre operand 0 must have memory of its own, got a tensor without "
                                                     "storage"),
    ({"weight": None}, TypeError, "weight must be a torch.Tensor, got NoneType"),
    ({"weight": torch.zeros(4, 3, 3)}, ValueError, "weight must have shape (out_channels, 4, taps) for 4 channels in 1 "
                                                   "groups, got (4, 3, 3)"),
    ({"weight": torch.zeros(4, 3)}, ValueError, "weight must have shape (out_channels, in_channels / groups, taps), "
                                                "got (4, 3)"),
    ({"x_local": torch.zeros(5)}, ValueError, "input must have shape (batch, channels, length) or (channels, length), "
                                              "got (5,)"),
    ({"bias": torch.zeros(3)}, ValueError, "bias must have shape (4,), got (3,)"),
    ({"bias": torch.zeros(4, device="meta")}, ValueError, "bias must be on the input's device cpu, got meta"),
    ({"weight": W.double()}, TypeError, "weight must have dtype float32 like the input, got float64"),
    ({"groups": 3}, ValueError, "groups must divide the input's 4 channels, got 3"),
    ({"stride": 0}, ValueError, "stride must be at least 1, got 0"),
    ({"padding": -1}, ValueError, "padding must not be negative, got -1"),
    ({"padding": "same", "stride": 2}, ValueError, "padding='same' must have stride 1, got 2"),
    ({"dilation": 0}, ValueError, "dilation must be at least 1, got 0"),
    ({"schedule": "fast"}, ValueError, "schedule must be"),
    ({"lengths": [5, 5]}, ValueError, "lengths must have one number for each of the 1 ranks, got 2"),
    ({"lengths": [4]}, ValueError, "lengths must be 5 for rank 0, whose piece it is, got 4"),
    ({"lengths": [-1]}, ValueError, "lengths must not be negative, got (-1,)"),
    ({"lengths": [5.0]}, TypeError, "lengths must hold ints, got float"),
    ({"pre": stages.mul(torch.zeros(4))}, ValueError, "pre operand 0 must broadcast to the result's shape (2, 4, 5), "
                                                      "got (4,)"),
    ({"post": stages.mul(torch.zeros(5))}, ValueError, "post operand 0 must broadcast to the result's shape (2, 4, 3), "
                                                       "got (5,)"),
    ({"post": "nonsense"}, ValueError, "post"),
    ({"out": torch.zeros(2, 4, 5)}, ValueError, "out must have shape (2, 4, 3), got (2, 4, 5)"),
    ({"out": torch.zeros(2, 4, 3).double()}, TypeError, "out must have dtype float32, got float64"),
    ({"out": X[..., :3]}, ValueError, "out must not overlap x_local, got memory in common"),
]  # fmt: skip
CAUSAL: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"dim": 2}, ValueError, "dim must be 'sequence': batch and channels need no communication, got 2"),
    ({"weight": torch.zeros(3, 3)}, ValueError, "weight must have shape (C, K) with C = 4, got (3, 3)"),
    ({"x_local": X[0]}, ValueError, "x must have shape (batch, channels, length), got (4, 5)"),
    ({"activation": "relu"}, ValueError, "activation must be None, identity, silu or swish, got 'relu'"),
    ({"initial_states": torch.zeros(2, 4, 3)}, ValueError, "initial_states must have shape (sequences, channels, "
                                                           "(K - 1) * dilation) = (2, 4, 2), got (2, 4, 3)"),
    ({"initial_states": torch.zeros(2, 4, 2).double()}, TypeError, "initial_states must have dtype float32 like x when "
                                                                   "the sequence is split, got float64"),
    ({"residual": torch.zeros(2, 4, 4)}, ValueError, "post operand 0 must broadcast to the result's shape (2, 4, 5), "
                                                     "got (2, 4, 4)"),
    ({"seq_idx": torch.zeros(2, 4).int()}, ValueError, "seq_idx must have shape (2, 5), got (2, 4)"),
    ({"seq_idx": torch.zeros(2, 5).int(), "schedule": "direct"}, ValueError,
     "schedule must be auto and depth None with sequences, got 'direct' and None"),
    ({"seq_idx": torch.zeros(2, 5).int(), "cu_seqlens": torch.tensor([0, 5])}, ValueError,
     "seq_idx must be None when cu_seqlens is given, got both"),
    ({"cu_seqlens": torch.tensor([0, 5])}, ValueError, "x must have shape (1, channels, tokens) with cu_seqlens, "
                                                       "got (2, 4, 5)"),
    ({"cu_seqlens": torch.tensor([0, 5]), "return_final_states": True}, ValueError,
     "initial_states and final states must be omitted with cu_seqlens when the sequence is split, because a rank may "
     "have neither end of one"),
    ({"broadcast_final_states": True}, ValueError, "return_final_states must be True with broadcast_final_states, "
                                                   "got False"),
    ({"lengths": ["5"]}, TypeError, "lengths must hold ints, got str"),
    ({"out": X}, ValueError, "out must not overlap x_local, got memory in common"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changed", "kind", "words"),
    [("conv1d", *case) for case in CONV] + [("causal_conv1d", *case) for case in CAUSAL],
)
def test_what_is_refused(
    name: str, changed: dict[str, Any], kind: type[Exception], words: str, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(dist, "batch_isend_irecv", sent.append)
    function, plain = getattr(sluice.distributed, name), {"x_local": X, "weight": W if name == "conv1d" else TAPS}
    function(**plain)  # an accepted call is remembered
    with pytest.raises(kind) as caught:
        function(**{**plain, **changed})
    text = str(caught.value)
    assert text == f"{name}: {words}" or (name == "conv1d" and text.startswith(f"conv1d: {words}"))
    assert not sent


@pytest.mark.parametrize("name", ["conv1d", "causal_conv1d"])
def test_an_accepted_call_is_checked_once(name: str, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    function, weight = getattr(sluice.distributed, name), W if name == "conv1d" else TAPS
    accepted = importlib.import_module(f"sluice.distributed.{name}")._ACCEPTED
    x, gain = torch.randn(2, 4, 11), torch.randn(4, 1)
    asked: list[object] = []
    monkeypatch.setattr(type(accepted), "add", lambda self, key, found: asked.append(key) or ADD(self, key, found))
    for _ in range(2):
        for options in ({"dilation": 1}, {"dilation": 2}, {"pre": "silu"}, {"pre": stages.mul(gain)}):
            function(x, weight, **options)
            function(x.mT.contiguous().mT, torch.nn.Parameter(weight, requires_grad=False), **options)
    assert len(set(asked)) == len(asked) == 8
    # What the first checks did not read is read again.
    with pytest.raises(TypeError, match="dilation must be an int, got bool"):
        function(x, weight, dilation=True)
    with pytest.raises(RuntimeError, match="an input requires grad"):
        function(x.clone().requires_grad_(), weight)
    with pytest.raises(ValueError, match="out must not overlap x_local"):
        function(x, weight, out=x[..., : function(x, weight).shape[-1]])
    with torch.autocast("cpu", torch.bfloat16):
        assert function(x, weight).dtype == torch.bfloat16
    assert function(x, weight).dtype == torch.float32


def test_keys_are_forgotten_before_they_are_many() -> None:
    known: Accepted[int] = Accepted()
    for n in range(3000):
        known.add(key_of(n, None, "text"), n)
        assert known.find(key_of(n, None, "text")) == n
    assert len(known._found) <= 1024
    assert key_of(1) != key_of(True) != key_of(1.0)
    assert key_of(X) == key_of(X.clone()) != key_of(X.double())
    for unknown in ([1], X.to_sparse(), torch.nested.nested_tensor([X]), Tagged(X), stages.mul(X.to_sparse())):
        assert key_of(unknown) is None
        known.add(key_of(unknown), 5)
        assert known.find(key_of(unknown)) is None
    keys: list[object] = []
    torch.vmap(lambda x: (keys.append(key_of(x)), x)[1])(X)
    assert keys == [None]


def test_an_op_without_a_rule_is_called_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sharded:
        device_mesh, device = "a mesh", torch.device("cpu")

    asked: list[object] = []

    def refuse(x: object) -> None:
        asked.append(x)
        raise NotImplementedError("no sharding strategy")

    monkeypatch.setitem(_call._functions, "refused", refuse)
    for one, calls in ((Sharded(), 2), (X, 1)):
        with pytest.raises(NotImplementedError, match="no sharding strategy"):
            _call.run("an op", (one,), {}, raw="refused")
        assert asked == [one] * calls
        asked.clear()


def test_gradients_are_refused(alone: None) -> None:
    for function, weight in ((sluice.distributed.conv1d, W), (sluice.distributed.causal_conv1d, TAPS)):
        with pytest.raises(RuntimeError, match="sluice is forward-only and an input requires grad"):
            function(X, weight.clone().requires_grad_())
        with torch.no_grad():
            function(X, weight.clone().requires_grad_())


def test_autocast_casts_as_the_ops_do(alone: None) -> None:
    x, w, taps = torch.randn(2, 4, 9), torch.randn(4, 1, 3), torch.randn(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y = sluice.distributed.conv1d(x, w, groups=4)
        z = sluice.distributed.causal_conv1d(x, taps)
        assert torch.equal(y, sluice.conv1d(x, w, groups=4))
        assert torch.equal(z, sluice.causal_conv1d(x, taps))
    assert y.dtype == z.dtype == torch.bfloat16


def test_a_packed_weight_and_a_dtype_are_the_ops(alone: None) -> None:
    x, w = torch.randn(2, 4, 9), torch.randn(4, 4, 3)
    y = sluice.distributed.conv1d(x, sluice.pack(w), post="silu", dtype=torch.float64)
    assert torch.equal(y, sluice.conv1d(x, w, post="silu", dtype=torch.float64))


def test_lazily_negated_pieces_and_outs(alone: None) -> None:
    x, taps = torch.randn(2, 4, 9), torch.randn(4, 3)
    negated = torch._neg_view(x)
    assert torch.equal(sluice.distributed.causal_conv1d(negated, taps), sluice.causal_conv1d(-x, taps))
    out = torch._neg_view(torch.full_like(x, NAN))
    assert sluice.distributed.causal_conv1d(x, taps, out=out) is out
    assert torch.equal(out, sluice.causal_conv1d(x, taps))


def test_lengths_are_gathered(alone: None) -> None:
    assert sluice.distributed.gather_lengths(7) == (7,)
    with pytest.raises(ValueError, match="gather_lengths: length must not be negative, got -1"):
        sluice.distributed.gather_lengths(-1)
    with pytest.raises(TypeError, match="gather_lengths: length must be an int, got float"):
        sluice.distributed.gather_lengths(1.0)


def test_without_a_group_the_error_is_torchs() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        sluice.distributed.conv1d(X, W)


LOADED = """
import sys, sluice
print([n for n in sys.modules if n.startswith("sluice.distributed")])
print("torch.distributed.tensor" in sys.modules, sluice.distributed.conv1d.__name__)
"""
WITHOUT = """
import sys, types, torch
missing = types.ModuleType("torch.distributed")
missing.is_available = lambda: False
torch.distributed = sys.modules["torch.distributed"] = missing
for name in [n for n in sys.modules if n.startswith("torch.distributed.")]:
    sys.modules[name] = None
import sluice, sluice.distributed
for function in (sluice.distributed.conv1d, sluice.distributed.causal_conv1d):
    try:
        function(torch.zeros(1, 2, 5), torch.zeros(2, 2, 3))
    except RuntimeError as error:
        print(error)
"""
# Runs both in forks of a process that has imported only torch.
BOTH = f"""
import os, torch
for program in {[LOADED, WITHOUT]}:
    if (child := os.fork()) == 0:
        exec(program)
        break
    os.waitpid(child, 0)
"""


def test_the_package_is_loaded_when_it_is_used_and_a_torch_without_torch_distributed_is_named() -> None:
    result = python(BOTH)
    rule = "torch.distributed must be available, got a torch that was built without it"
    loaded, without = ["[]", "False conv1d"], [f"conv1d: {rule}", f"causal_conv1d: {rule}"]
    assert result.stdout.splitlines() == [*loaded, *without], result.stderr


@pytest.mark.parametrize(
    ("name", "how"),
    [("conv1d", "eager"), ("causal_conv1d", "eager"), ("transform", "compiled"), ("module", "compiled")],
)
def test_a_dtensor_loads_the_package(name: str, how: str) -> None:
    group = Ranks(1)
    assert group.run(first_calls.first_call, name, how) == [(False, True, "(Shard(dim=1),)")]
    group.close()
