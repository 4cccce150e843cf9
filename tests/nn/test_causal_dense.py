"""sluice.nn.CausalConv1d with `out_channels`, and CausalConvTranspose1d: torch's values and gradients, and chunks."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from common import DTYPES, NAN, assert_close, double_chain
from sluice import stages

CHAINS: list[dict[str, Any]] = [
    {},
    {"pre": nn.ELU(), "post": nn.Sequential(nn.Tanh(), nn.Hardtanh(-0.5, 0.7))},
    {"pre": nn.PReLU(6), "post": nn.PReLU(4)},
    {"pre": stages.leaky_relu(0.1), "post": "silu()"},
]
MODES = ["zeros", "replicate", "reflect"]


def applied(chain: Any, x: torch.Tensor) -> torch.Tensor:
    """A chain or a module of x, with its tensors in x's dtype."""
    if chain is None:
        return x
    if isinstance(chain, nn.Module):
        return chain(x) if x.requires_grad else copy.deepcopy(chain).to(x.dtype)(x)  # type: ignore[no-any-return]
    return sluice.reference.transform(x, double_chain(chain) if x.dtype == torch.float64 else chain)


def dense(layer: Any, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    """What torch makes of `pre`'s result x: padding on the left, then a convolution, in x's dtype."""
    pads, mode = (layer.padding[0], 0), "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    weight, bias = layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype)
    y = F.conv1d(F.pad(x, pads, mode), weight, bias, layer.stride, 0, layer.dilation, layer.groups)
    y = F.silu(y) if layer.activation else y
    return applied(layer.post, y if residual is None else y + residual)


def spread(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """The same of a transposed convolution: the bias alone after the last tap, and trimming on the right."""
    weight, bias = layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype)
    (stride,), gap = layer.stride, max(0, layer.stride[0] - layer.dilation[0] * (layer.kernel_size[0] - 1) - 1)
    numbers = (stride, 0, gap, layer.groups, layer.dilation)
    y = F.conv_transpose1d(x, weight, bias, *numbers)[..., : stride * x.shape[-1]]
    return applied(layer.post, y)


def columns_of(layer: Any) -> int:
    return max(0, layer.dilation[0] * (layer.kernel_size[0] - 1) + 1 - layer.stride[0])


def state_of(layer: Any, slots: int, more: int = 0) -> torch.Tensor:
    """Zeros for some slots; overlaps of half types are float32."""
    weight, count = layer.weight, layer.out_channels if layer.transposed else layer.in_channels
    dtype = torch.float32 if layer.transposed and weight.dtype.itemsize == 2 else weight.dtype
    return torch.zeros(slots, count, columns_of(layer) + more, dtype=dtype, device=weight.device)


def drawn(kind: str, device: str, dtype: torch.dtype = torch.float32, **options: Any) -> list[Any]:
    """Layers of 6 channels to 4, of several taps, strides, dilations and groups."""
    layers = []
    for taps, stride, dilation, groups in itertools.product((1, 4, 7), (1, 3), (1, 2), (1, 2)):
        numbers: dict[str, Any] = {"stride": stride, "groups": groups, "bias": groups == 1, **options}
        if kind == "dense":
            layer: Any = sluice.nn.CausalConv1d(6, taps, dilation, out_channels=4, **numbers)
        else:
            layer = sluice.nn.CausalConvTranspose1d(6, 4, taps, dilation=dilation, **numbers)
        layers.append(copy.deepcopy(layer).to(device, dtype))
    return layers


# --- torch's modules --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chains", CHAINS, ids=range(len(CHAINS)))
def test_values(device: str, dtype: torch.dtype, chains: dict[str, Any]) -> None:
    x = torch.randn(2, 6, 15, device=device).to(dtype)
    with torch.no_grad():
        for mode in MODES:
            for layer in drawn("dense", device, dtype, padding_mode=mode, **chains):
                rounded = x if layer.pre is None else sluice.nn.Transform(layer.pre)(x)
                assert_close(layer(x), dense(layer, rounded.double()), factor=3.0)
        for layer in drawn("transposed", device, dtype, **chains):
            rounded = x if layer.pre is None else sluice.nn.Transform(layer.pre)(x)
            assert_close(layer(x), spread(layer, rounded.double()), factor=3.0)


def test_activation_and_residual(device: str) -> None:
    x, residual = torch.randn(2, 6, 12, device=device), torch.randn(2, 4, 4, device=device)
    layer = sluice.nn.CausalConv1d(6, 5, out_channels=4, stride=3, activation="silu", post=nn.ReLU()).to(device)
    with torch.no_grad():
        assert_close(layer(x, residual=residual), dense(layer, x.double(), residual.double()))
    y = layer(x, residual=residual)
    assert y.requires_grad
    assert_close(y.detach(), dense(layer, x.double(), residual.double()).detach())


@pytest.mark.parametrize("bias", [True, False])
def test_state_dicts_of_torch_fit(bias: bool) -> None:
    for ours, theirs in (
        (sluice.nn.CausalConv1d(6, 5, 2, bias, out_channels=4, groups=2), nn.Conv1d(6, 4, 5, groups=2, bias=bias)),
        (sluice.nn.CausalConvTranspose1d(6, 4, 5, 2, 2, bias), nn.ConvTranspose1d(6, 4, 5, 2, groups=2, bias=bias)),
    ):  # fmt: skip
        assert str(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
        assert isinstance(ours, type(theirs))
        for name, value in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], value)


@pytest.mark.parametrize("kind", ["dense", "transposed"])
@pytest.mark.parametrize("chains", CHAINS[:3], ids=range(3))
def test_gradients(device: str, kind: str, chains: dict[str, Any]) -> None:
    """They are torch's: of the input, the parameters and the parameters of modules around."""
    whole = dense if kind == "dense" else spread
    for mode in MODES if kind == "dense" else ["zeros"]:
        options = {"padding_mode": mode} if kind == "dense" else {}
        for layer in drawn(kind, device, torch.float64, **options, **chains):
            x = torch.randn(2, 6, 15, device=device, dtype=torch.float64, requires_grad=True)
            names, parameters = zip(*layer.named_parameters(), strict=True)
            factors = torch.randn_like(layer(x))
            found = torch.autograd.grad((layer(x) * factors).sum(), [x, *parameters])
            y = whole(layer, applied(layer.pre, x))
            wanted = torch.autograd.grad((y * factors).sum(), [x, *parameters])
            for name, one, other in zip(["x", *names], found, wanted, strict=True):
                torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


def test_numbers_that_do_not_fit() -> None:
    for options in ({"stride": 2}, {"groups": 2}, {"padding_mode": "replicate"}):
        with pytest.raises(ValueError, match="out_channels must be given with a stride, groups or a padding_mode"):
            sluice.nn.CausalConv1d(6, 3, **options)
    with pytest.raises(ValueError, match="padding_mode must be zeros, replicate or reflect, got 'circular'"):
        sluice.nn.CausalConv1d(6, 3, out_channels=4, padding_mode="circular")
    with pytest.raises(ValueError, match="activation must be None, identity, silu or swish, got 'relu'"):
        sluice.nn.CausalConv1d(6, 3, out_channels=4, activation="relu")
    with pytest.raises(TypeError, match="CausalConvTranspose1d: post must be a chain"):
        sluice.nn.CausalConvTranspose1d(6, 4, 3, post=3)


@pytest.mark.parametrize("with_gradients", [False, True])
def test_calls_that_do_not_fit(device: str, with_gradients: bool) -> None:
    """The same rules with and without gradients."""
    layer = sluice.nn.CausalConv1d(6, 5, out_channels=4, stride=3, device=device).requires_grad_(with_gradients)
    x = torch.randn(2, 6, 12, device=device)
    with pytest.raises(ValueError, match="x must have a multiple of stride = 3 positions, got 11"):
        layer(x[..., :11])
    with pytest.raises(ValueError, match=r"x must have shape \(batch, channels, length\), got \(6, 12\)"):
        layer(x[0])
    for name in ("seq_idx", "cu_seqlens"):
        with pytest.raises(ValueError, match=f"{name} must be None with a weight of three dimensions, got one"):
            layer(x, **{name: torch.zeros(2, 12, dtype=torch.int32, device=device)})
    with pytest.raises(ValueError, match="initial_states must have shape"):
        layer(x, initial_states=torch.randn(2, 6, 4, device=device))


def test_step_is_refused(device: str) -> None:
    layer = sluice.nn.CausalConv1d(6, 3, out_channels=6, device=device)
    with pytest.raises(ValueError, match="out_channels must be None for step; pass state= to the module instead"):
        layer.step(torch.randn(2, 6, device=device), torch.zeros(2, 6, 2, device=device))


# --- chunks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["dense", "transposed"])
def test_chunks(device: str, kind: str, dtype: torch.dtype) -> None:
    """Chunk by chunk with a state, also wider than needed, the results of the whole row."""
    x = torch.randn(2, 6, 24, device=device).to(dtype)
    for chains in CHAINS:
        for layer in drawn(kind, device, dtype, **chains):
            state, whole = state_of(layer, 2, more=layer.groups - 1), spread if kind == "transposed" else dense
            with torch.no_grad():
                parts = [layer(chunk, state=state) for chunk in x.split([3, 6, 3, 12], -1)]
                rounded = x if layer.pre is None else sluice.nn.Transform(layer.pre)(x)
                assert_close(torch.cat(parts, -1), whole(layer, rounded.double()), factor=3.0)


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_chunks_of_padding_modes(device: str, mode: str) -> None:
    """`has_initial_state` says where a stream begins; a first chunk of "reflect" has the inputs that it mirrors."""
    x = torch.randn(2, 6, 24, device=device)
    for layer in drawn("dense", device, padding_mode=mode, pre=nn.Sigmoid()):
        state, begun = state_of(layer, 2).fill_(NAN), torch.tensor([False, False], device=device)
        parts = []
        with torch.no_grad():
            for chunk in x.split([15, 3, 6] if mode == "reflect" else [3, 3, 18], -1):
                parts.append(layer(chunk, state=state, has_initial_state=begun))
                begun = ~torch.zeros_like(begun)
            assert_close(torch.cat(parts, -1), dense(layer, applied(layer.pre, x.double())), factor=3.0)


@pytest.mark.parametrize("kind", ["dense", "transposed"])
def test_slots(device: str, kind: str) -> None:
    """Rows have slots in any order; a row without a slot has zeros, and other slots do not change."""
    x = torch.randn(2, 6, 12, device=device)
    for layer in drawn(kind, device, post=nn.Sigmoid()):
        state = state_of(layer, 5).fill_(NAN)
        state[[3, 0]] = 0.0
        slots, rows = torch.tensor([3, -1, 0], device=device), torch.stack([x[0], torch.full_like(x[0], NAN), x[1]])
        with torch.no_grad():
            y = torch.cat([layer(chunk, state=state, slots=slots) for chunk in rows.split([3, 9], -1)], -1)
            assert not y[1].any()
            assert_close(y[[0, 2]], layer(x).double(), factor=2.0)
        assert state[[1, 2, 4]].isnan().all()
        assert state[[3, 0]].isfinite().all()


def test_states_of_calls(device: str) -> None:
    """Initial and final states of the dense layer, with gradients and without them."""
    x = torch.randn(2, 6, 12, device=device)
    for layer in drawn("dense", device, pre=nn.Tanh()):
        for context in (torch.no_grad(), torch.enable_grad()):
            with context:
                first, states = layer(x[..., :6], return_final_states=True)
                second, last = layer(x[..., 6:], initial_states=states, return_final_states=True)
                wanted = dense(layer, applied(layer.pre, x.double())).detach()
            assert_close(torch.cat([first, second], -1).detach(), wanted, factor=3.0)
            history = columns_of(layer)
            assert torch.equal(last, F.pad(x, (history, 0))[..., 12:])  # inputs before `pre`


def test_a_depthwise_layer_in_chunks(device: str) -> None:
    layer, x = (
        sluice.nn.CausalConv1d(6, 4, activation="silu", post=nn.Tanh()).to(device),
        torch.randn(2, 6, 9, device=device),
    )
    state = torch.zeros(4, 6, 3, device=device)
    slots = torch.tensor([2, 0], device=device)
    with torch.no_grad():
        parts = [layer(chunk, state=state, slots=slots) for chunk in x.split([1, 5, 3], -1)]
        assert_close(torch.cat(parts, -1), layer(x).double())
    assert not state[[1, 3]].any()


@pytest.mark.parametrize("kind", ["dense", "transposed"])
def test_what_a_state_refuses(device: str, kind: str) -> None:
    dropout = nn.Dropout(0.5).eval()
    layer = drawn(kind, device, post=dropout)[10]
    x, state = torch.randn(2, 6, 12, device=device), state_of(layer, 2)
    layer.train()
    with pytest.raises(RuntimeError, match="must have stages with a state, got one without; call eval"):
        layer(x, state=state)
    assert layer(x).requires_grad
    layer.eval()
    with pytest.raises(RuntimeError, match="sluice is forward-only and an input requires grad"):
        layer(x, state=state)
    layer.requires_grad_(False)
    with pytest.raises(RuntimeError, match="sluice is forward-only and an input requires grad"):
        layer(x.clone().requires_grad_(), state=state)
    with pytest.raises(ValueError, match=r"must have shape \(slots, \d, columns\), got"):
        layer(x, state=state[:, 1:])
    with pytest.raises(ValueError, match=r"must have at least .* = 6 columns, got 5"):
        layer(x, state=state[:, :, 1:])
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor, got list"):
        layer(x, state=state.tolist())
    for name, dtype in (("slots", torch.int32), ("has_initial_state", torch.bool)):
        with pytest.raises(ValueError, match=f"{type(layer).__name__}: {name} must be given with a state, got none"):
            layer(x, **{name: torch.zeros(2, device=device, dtype=dtype)})
    for options in ({"initial_states": state}, {"return_final_states": True}) if kind == "dense" else ():
        with pytest.raises(ValueError, match="CausalConv1d: initial_states and final states must be omitted"):
            layer(x, state=state, **options)
    assert not state.any()


# --- modules ----------------------------------------------------------------------------------------------------------
def test_texts() -> None:
    layer = sluice.nn.CausalConv1d(
        6, 5, 2, False, out_channels=4, stride=3, groups=2, padding_mode="replicate", activation="silu", pre="relu()",
    )  # fmt: skip
    assert repr(layer) == (
        "CausalConv1d(6, kernel_size=5, out_channels=4, stride=3, groups=2, padding_mode=replicate, dilation=2, "
        "bias=False, activation=silu, pre=relu())"
    )
    layer = sluice.nn.CausalConvTranspose1d(6, 4, 8, 4, 2, False, 3, post="silu()")
    assert repr(layer) == (
        "CausalConvTranspose1d(6, 4, kernel_size=(8,), stride=(4,), dilation=(3,), groups=2, bias=False, post=silu())"
    )
    assert "(post): Tanh()" in repr(sluice.nn.CausalConvTranspose1d(6, 4, 8, post=nn.Tanh()))


@pytest.mark.parametrize("kind", ["dense", "transposed"])
@pytest.mark.parametrize("chains", CHAINS, ids=range(len(CHAINS)))
def test_copies_and_pickles(device: str, kind: str, chains: dict[str, Any]) -> None:
    layer = drawn(kind, device, **chains)[9]
    x = torch.randn(2, 6, 12, device=device)
    with torch.no_grad():
        wanted = layer(x)
        for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(other(x), wanted)
            state = state_of(other, 2)
            assert_close(other(x, state=state), wanted.double())
        memory = io.BytesIO()
        torch.save(layer.state_dict(), memory)
        memory.seek(0)
        fresh = drawn(kind, device, **chains)[9]
        fresh.load_state_dict(torch.load(memory))
        torch.testing.assert_close(fresh(x), wanted)


@pytest.mark.parametrize("kind", ["dense", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_dtypes_change(device: str, kind: str, dtype: torch.dtype) -> None:
    """Chains' tensors follow `.to`, as parameters do."""
    gains = torch.rand(4, 1, device=device) + 0.5
    layer = drawn(kind, device, post=stages.mul(gains))[5]
    x = torch.randn(2, 6, 12, device=device)
    with torch.no_grad():
        before = layer(x)
        layer.to(dtype)
        after = layer(x.to(dtype))
        chunk = layer(x.to(dtype), state=state_of(layer, 2))
    assert after.dtype == chunk.dtype == dtype
    limit = 5e-2 if dtype.itemsize == 2 else 1e-5
    torch.testing.assert_close(after.float(), before, rtol=limit, atol=limit)
    assert_close(chunk, after.double(), factor=2.0)


def test_graphs_of_fx_have_torchs_functions() -> None:
    for mode in MODES:
        layers = sluice.nn.CausalConv1d(
            6, 5, out_channels=4, stride=2, padding_mode=mode, activation="silu", pre=nn.ELU()
        )
        model, x = (
            nn.Sequential(layers, sluice.nn.CausalConvTranspose1d(4, 2, 5, 3, post=nn.Tanh())),
            torch.randn(2, 6, 8),
        )
        traced = torch.fx.symbolic_trace(model)
        with torch.no_grad():
            torch.testing.assert_close(traced(x), model(x))
        assert not any("sluice" in str(node.target) for node in traced.graph.nodes)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("kind", ["dense", "transposed"])
def test_exported_and_compiled(device: str, kind: str) -> None:
    """A call, and a call with a state, which the graph changes in place."""
    layer = drawn(kind, device, pre=nn.ELU(), post=nn.Tanh())[10].requires_grad_(False)
    x = torch.randn(2, 6, 12, device=device)
    exported = torch.export.export(layer, (x,), strict=False)
    torch.testing.assert_close(exported.module()(x), layer(x))
    assert any("sluice" in str(node.target) for node in exported.graph.nodes)

    class Chunk(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor, state: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
            return self.layer(x, state=state, slots=slots)

    state, same, third = (state_of(layer, 3) for _ in range(3))
    slots = torch.tensor([2, 0], device=device)
    step = torch.export.export(Chunk(), (x, state, slots), strict=False).module()
    compiled = torch.compile(Chunk(), fullgraph=True, backend="aot_eager")
    for _ in range(2):
        wanted = layer(x, state=state, slots=slots)
        torch.testing.assert_close(step(x, same, slots), wanted)
        torch.testing.assert_close(compiled(x, third, slots), wanted)
        x = torch.randn(2, 6, 12, device=device)
    torch.testing.assert_close(same, state)
    torch.testing.assert_close(third, state)
    assert not state[1].any()
    assert state.any()
