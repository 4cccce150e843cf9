"""sluice.nn: torch's modules, their results, their gradients, and usual operations on modules."""

from __future__ import annotations

import copy
import inspect
import io
import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import DTYPES, HALF_TYPES, LAYOUTS, assert_close
from sluice import stages

OURS = {torch.nn.Conv1d: sluice.nn.Conv1d, torch.nn.ConvTranspose1d: sluice.nn.ConvTranspose1d}
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


def twins(kind: type, *args: Any, device: str = "cpu", dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Torch's module and ours with the same parameters."""
    chains = {name: options.pop(name) for name in ("pre", "post") if name in options}
    theirs = kind(*args, **options).to(device, dtype)
    ours = OURS[kind](*args, **options, **chains).to(device, dtype)
    ours.load_state_dict(theirs.state_dict(), strict=not chains)
    return theirs, ours


def in_float64(module: torch.nn.Module, *args: Any) -> torch.Tensor:
    wide = copy.deepcopy(module).double()
    with torch.no_grad():
        return wide(*(arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args))


# --- torch's modules --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", OURS)
def test_the_constructor_is_torchs(kind: type) -> None:
    theirs, ours = (list(inspect.signature(c).parameters.values()) for c in (kind, OURS[kind]))
    assert [(p.name, p.default) for p in ours[:-2]] == [(p.name, p.default) for p in theirs]
    assert [(p.name, p.kind, p.default) for p in ours[-2:]] == [
        ("pre", inspect.Parameter.KEYWORD_ONLY, None),
        ("post", inspect.Parameter.KEYWORD_ONLY, None),
    ]
    for options in ({}, {"padding": 2, "dilation": 3, "groups": 2, "bias": False}, {"dtype": torch.float64}):
        torch.manual_seed(1)
        one = kind(4, 6, 3, **options)
        torch.manual_seed(1)
        other = OURS[kind](4, 6, 3, **options)
        assert isinstance(other, kind)
        assert repr(one).replace(kind.__name__, "") == repr(other).replace(kind.__name__, "")
        assert one.state_dict().keys() == other.state_dict().keys()
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_conv1d_in_every_padding_mode(device: str, layout: Any, dtype: torch.dtype) -> None:
    shapes = [
        ((6, 8, 3), {"padding": 1}),
        ((6, 6, 4), {"padding": "same", "dilation": 2, "groups": 6}),
        ((6, 4, 5), {"padding": "valid", "stride": 2, "groups": 2, "bias": False}),
        ((6, 6, 3), {"padding": 4, "stride": 3, "groups": 6}),
    ]
    for (args, options), mode in itertools.product(shapes, PADDING_MODES):
        theirs, ours = twins(torch.nn.Conv1d, *args, device=device, dtype=dtype, padding_mode=mode, **options)
        x = layout(torch.randn(2, 6, 21, device=device).to(dtype))
        with torch.no_grad():
            assert_close(ours(x), in_float64(theirs, x))
            if mode == "zeros":
                assert_close(ours(x[0]), in_float64(theirs, x[0]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conv_transpose1d(device: str, dtype: torch.dtype) -> None:
    for args, options in [
        ((6, 8, 4), {"stride": 2, "padding": 1}),
        ((6, 6, 5), {"stride": 3, "padding": 2, "output_padding": 1, "groups": 6}),
        ((6, 4, 3), {"dilation": 2, "groups": 2, "bias": False}),
    ]:
        theirs, ours = twins(torch.nn.ConvTranspose1d, *args, device=device, dtype=dtype, **options)
        x = torch.randn(2, 6, 13, device=device).to(dtype)
        with torch.no_grad():
            assert_close(ours(x), in_float64(theirs, x))
            size = [theirs(x).shape[-1] + (options.get("stride", 1) > 1)]
            if options.get("output_padding", 0) == 0:
                assert ours(x, output_size=size).shape[-1] == size[0]
                assert_close(ours(x, size), in_float64(theirs, x, size))
            with pytest.raises(ValueError, match="output size"):
                ours(x, output_size=[1000])


CHAINS = {
    "modules": (torch.nn.LeakyReLU(0.1), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Hardtanh(-0.5, 1))),
    "chains": (stages.leaky_relu(0.1), stages.tanh() | stages.clamp(-0.5, 1.0)),
    "texts": ("leaky_relu(0.1)", "tanh()|clamp(-0.5, 1.0)"),
}


@pytest.mark.parametrize("given", CHAINS)
@pytest.mark.parametrize("mode", PADDING_MODES)
def test_chains_are_modules_around(device: str, mode: str, given: str) -> None:
    pre, post = CHAINS[given]
    theirs, ours = twins(
        torch.nn.Conv1d, 6, 8, 3, device=device, padding=2, padding_mode=mode, pre=pre, post=post
    )  # fmt: skip
    whole = torch.nn.Sequential(CHAINS["modules"][0], theirs, *CHAINS["modules"][1])
    x = torch.randn(2, 6, 17, device=device)
    with torch.no_grad():
        assert_close(ours(x), in_float64(whole, x))
    transposed, own = twins(torch.nn.ConvTranspose1d, 6, 8, 4, 2, device=device, pre=pre, post=post)
    whole = torch.nn.Sequential(CHAINS["modules"][0], transposed, *CHAINS["modules"][1])
    with torch.no_grad():
        assert_close(own(x), in_float64(whole, x))


def test_a_chain_with_tensors_is_computed_ahead_of_padding(device: str) -> None:
    gains = torch.rand(6, 17, device=device) + 0.5
    theirs, ours = twins(
        torch.nn.Conv1d, 6, 8, 3, device=device, padding=2, padding_mode="circular", pre=stages.mul(gains)
    )
    x = torch.randn(2, 6, 17, device=device)
    with torch.no_grad():
        assert_close(ours(x), in_float64(theirs, x * gains))


# --- modules as chains ------------------------------------------------------------------------------------------------
KNOWN: list[torch.nn.Module] = [
    torch.nn.Identity(), torch.nn.ReLU(), torch.nn.ReLU6(), torch.nn.LeakyReLU(0.3), torch.nn.PReLU(),
    torch.nn.PReLU(5), torch.nn.ELU(1.5), torch.nn.SELU(), torch.nn.GELU(), torch.nn.GELU("tanh"), torch.nn.SiLU(),
    torch.nn.Sigmoid(), torch.nn.LogSigmoid(), torch.nn.Tanh(), torch.nn.Softplus(2.0, 10.0),
    torch.nn.Hardtanh(-2, 0.5), torch.nn.Dropout(0.5).eval(), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()),
    torch.nn.Sequential(),
]  # fmt: skip


@pytest.mark.parametrize("module", KNOWN, ids=repr)
def test_a_module_is_a_chain(module: torch.nn.Module) -> None:
    module = copy.deepcopy(module).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(0.1, 0.9)
        x = torch.linspace(-30, 30, 2 * 5 * 101, dtype=torch.float64).view(2, 5, 101)
        x[0, 0, :3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        torch.testing.assert_close(stages.from_module(module)(x), module(x), equal_nan=True)
        torch.testing.assert_close(sluice.nn.Transform(module)(x), module(x), equal_nan=True)


def test_modules_of_transformers_are_chains() -> None:
    pytest.importorskip("transformers")
    from transformers.activations import ACT2FN
    from transformers.models.dac.modeling_dac import Snake1d
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe

    snake_beta = getattr(modeling_qwen3_omni_moe, "Qwen3OmniMoeSnakeBeta", modeling_qwen3_omni_moe.SnakeBeta)
    modules = [Snake1d(5), snake_beta(5)]
    modules += [ACT2FN[name] for name in ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "silu", "relu2")]
    x = torch.randn(2, 5, 33, dtype=torch.float64)
    for module in modules:
        module = copy.deepcopy(module).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.uniform_(0.2, 1.2)
            torch.testing.assert_close(stages.from_module(module)(x), module(x))


class Other(torch.nn.ReLU):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


@pytest.mark.parametrize("module", [torch.nn.Softmax(-1), Other(), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)])
def test_other_modules_are_no_chains(module: torch.nn.Module) -> None:
    for make in (stages.from_module, sluice.nn.Transform, lambda m: sluice.nn.Conv1d(4, 4, 3, post=m)):
        with pytest.raises(
            TypeError, match=rf"module must be an activation with a stage.*, got {type(module).__name__}"
        ):
            make(module)


def test_what_is_no_chain_is_refused() -> None:
    with pytest.raises(TypeError, match="Conv1d: post must be a chain or the text of one, got int"):
        sluice.nn.Conv1d(4, 4, 3, post=3)
    with pytest.raises(ValueError, match="activation must be None, identity, silu or swish, got 'relu'"):
        sluice.nn.CausalConv1d(4, 3, activation="relu")


# --- gradients --------------------------------------------------------------------------------------------------------
def gradients(module: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    module.zero_grad()
    module(x).square().sum().backward()
    return [x.grad, *(p.grad for p in module.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize("kind", OURS)
def test_modules_train(device: str, kind: type) -> None:
    activation = torch.nn.PReLU(8).to(device)
    theirs, ours = twins(kind, 6, 8, 3, device=device, pre=torch.nn.Tanh(), post=activation)
    whole = torch.nn.Sequential(torch.nn.Tanh(), theirs, activation)
    x = torch.randn(2, 6, 17, device=device)
    for one, other in zip(gradients(ours, x), gradients(whole, x), strict=True):
        torch.testing.assert_close(one, other)
    before = ours(x).detach()
    with torch.no_grad():
        torch.testing.assert_close(ours(x), before)
        for parameter in ours.parameters():  # a step of an optimiser
            parameter -= 0.1 * parameter.grad
        torch.testing.assert_close(ours(x), ours.requires_grad_(True)(x))
    torch.testing.assert_close(ours(x).detach(), ours.requires_grad_(False)(x))


def test_gradients_of_a_chains_tensor(device: str) -> None:
    gain = torch.nn.Parameter(torch.rand(8, 1, device=device))
    layer = sluice.nn.Conv1d(6, 8, 3, post=stages.mul(gain)).to(device).requires_grad_(False)
    assert layer.post.operands[0] is gain
    x = torch.randn(2, 6, 17, device=device)
    layer(x).sum().backward()
    torch.testing.assert_close(gain.grad, F.conv1d(x, layer.weight, layer.bias).sum((0, 2))[:, None])
    torch.testing.assert_close(sluice.nn.Transform(stages.mul(gain))(x[:, :1]).grad_fn is not None, True)


def test_tangents_and_transforms(device: str) -> None:
    theirs, ours = twins(torch.nn.Conv1d, 6, 8, 3, device=device)
    x, v = torch.randn(2, 2, 6, 17, device=device)
    with torch.no_grad():
        for one, other in zip(
            torch.func.jvp(ours, (x,), (v,)), torch.func.jvp(theirs, (x,), (v,)), strict=True
        ):  # fmt: skip
            torch.testing.assert_close(one, other)
    with torch.autograd.forward_ad.dual_level():  # without a dual tensor
        torch.testing.assert_close(gradients(ours, x), gradients(theirs, x))
    grad = torch.func.grad(lambda x: ours(x).square().sum())
    torch.testing.assert_close(grad(x), torch.func.grad(lambda x: theirs(x).square().sum())(x))
    weights = {"weight": torch.randn_like(ours.weight), "bias": torch.randn_like(ours.bias)}
    with torch.no_grad():
        assert_close(
            torch.func.functional_call(ours, weights, x), F.conv1d(x.double(), *(w.double() for w in weights.values()))
        )


# --- what users do with modules ---------------------------------------------------------------------------------------
def test_what_sluice_has_no_kernels_for_is_torchs() -> None:
    theirs, ours = twins(torch.nn.Conv1d, 4, 4, 3, dtype=torch.complex64)
    x = torch.randn(1, 4, 9, dtype=torch.complex64)
    with torch.no_grad():
        assert torch.equal(ours(x), theirs(x))


def test_copies_and_files(device: str) -> None:
    layer = sluice.nn.Conv1d(6, 8, 3, pre=stages.mul(torch.rand(6, 1)), post=torch.nn.PReLU(8)).to(device)
    x = torch.randn(2, 6, 17, device=device)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    with torch.no_grad():
        expected = layer(x)
        for twin in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
            assert type(twin) is sluice.nn.Conv1d
            assert torch.equal(twin(x), expected)
            twin.weight.zero_()
            assert torch.equal(layer(x), expected)


def test_a_chains_tensors_follow_the_module(device: str) -> None:
    gain, shared = torch.rand(8, 1), torch.nn.Parameter(torch.rand(8, 1))
    chain = stages.mul(gain) | stages.add(shared)
    layer = sluice.nn.Conv1d(6, 8, 3, post=chain)
    parent = torch.nn.Module()
    parent.layer, parent.shared = layer, shared
    parent.to(device).double()
    assert [(t.dtype, t.device.type) for t in layer.post.operands] == 2 * [(torch.float64, device)]
    assert layer.post.operands[1] is parent.shared
    x = torch.randn(2, 6, 17, device=device, dtype=torch.float64)
    with torch.no_grad():
        expected = F.conv1d(x, layer.weight, layer.bias) * gain.to(x) + parent.shared
        torch.testing.assert_close(layer(x), expected)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("norm", [torch.nn.utils.weight_norm, torch.nn.utils.parametrizations.weight_norm])
def test_weight_norms_and_new_weights(device: str, norm: Any) -> None:
    theirs, ours = (norm(module) for module in twins(torch.nn.Conv1d, 6, 8, 3, device=device))
    x = torch.randn(2, 6, 17, device=device)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))
        before = theirs(x)
        for parameter in theirs.parameters():
            parameter.uniform_(0.5, 1)
        ours.load_state_dict(theirs.state_dict())
        assert not torch.allclose(theirs(x), before)
        torch.testing.assert_close(ours(x), theirs(x))


def test_autocast(device: str) -> None:
    theirs, ours = twins(torch.nn.Conv1d, 32, 48, 3, device=device, post=torch.nn.GELU())
    x = torch.randn(2, 32, 40, device=device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        result = ours(x)
    assert result.dtype == torch.bfloat16
    assert_close(result, F.gelu(in_float64(theirs.bfloat16(), x.bfloat16())))


def test_compiled_and_exported(device: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, around = (
                {"pre": torch.nn.LeakyReLU(0.1), "post": stages.tanh() | stages.add(torch.rand(8, 1))} for _ in range(2)
            )
            self.first = sluice.nn.Conv1d(6, 8, 3, padding=1, **first)
            self.around = sluice.nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular", **around)
            self.second = sluice.nn.ConvTranspose1d(8, 8, 4, 2, 1, post=torch.nn.PReLU(8))
            self.third = sluice.nn.CausalConv1d(8, 4, activation="silu")
            self.last = sluice.nn.Transform(torch.nn.Softplus())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.third(self.second(self.around(self.first(x)))))

    torch._dynamo.reset()
    net = Net().to(device)
    x = torch.randn(2, 6, 17, device=device)
    with torch.no_grad():
        compiled = torch.compile(net, fullgraph=True, dynamic=True, backend="aot_eager")
        exported = torch.export.export(net, (x,), strict=False)
        for length in (17, 23):
            x = torch.randn(2, 6, length, device=device)
            torch.testing.assert_close(compiled(x), net(x))
        torch.testing.assert_close(exported.module()(x[..., :17]), net(x[..., :17]))
        calls = [str(node.target) for node in exported.graph.nodes if "sluice" in str(node.target)]
    assert {"sluice.conv_transpose1d.default", "sluice.causal_conv1d.default"} <= set(calls)
    assert calls.count("sluice.conv1d.default") == 2


def test_graphs_of_fx_have_torchs_functions() -> None:
    net = torch.nn.Sequential(
        sluice.nn.Conv1d(6, 8, 3, pre=torch.nn.Tanh(), post=torch.nn.GELU()),
        sluice.nn.ConvTranspose1d(8, 8, 4, 2, post=torch.nn.LeakyReLU(0.1)),
        sluice.nn.CausalConv1d(8, 4, activation="silu"),
        sluice.nn.Transform(torch.nn.Tanh()),
    )
    x = torch.randn(2, 6, 17)
    with torch.no_grad():
        torch.testing.assert_close(torch.fx.symbolic_trace(net)(x), net(x))


# --- CausalConv1d -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("activation", [None, "silu"])
def test_causal(device: str, activation: str | None, dilation: int) -> None:
    layer = sluice.nn.CausalConv1d(6, 4, dilation, activation=activation, post=torch.nn.LeakyReLU(0.2)).to(device)
    mambas = torch.nn.Conv1d(6, 6, 4, padding=3 * dilation, dilation=dilation, groups=6).to(device)
    mambas.load_state_dict(layer.state_dict())
    x, residual = torch.randn(2, 2, 6, 21, device=device)

    def expected(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        sums = in_float64(mambas, x)[..., : x.shape[-1]]
        return F.leaky_relu((F.silu(sums) if activation else sums) + residual.double(), 0.2)

    with torch.no_grad():
        assert_close(layer(x, residual=residual), expected(x, residual))
        state = torch.zeros(2, 6, 3 * dilation, device=device)
        first, states = layer(x[..., :9], initial_states=state, return_final_states=True)
        second, last = layer(x[..., 9:20], initial_states=states, return_final_states=True)
        third = layer.step(x[..., 20:], last)
        assert_close(torch.cat([first, second, third], -1), expected(x, torch.zeros_like(x)))
        starts = torch.tensor([0, 4, 4, 21], dtype=torch.int32, device=device)
        packed = layer(x[:1], cu_seqlens=starts)
        parts = [expected(part, torch.zeros_like(part)) for part in (x[:1, :, :4], x[:1, :, 4:])]
        assert_close(packed, torch.cat(parts, -1))
    ids = torch.tensor([[0] * 4 + [1] * 17], dtype=torch.int32, device=device)
    for options in ({}, {"initial_states": torch.randn(1, 6, 3 * dilation, device=device)}, {"seq_idx": ids}):
        with_gradients, states = layer(x[:1], residual=residual[:1], return_final_states=True, **options)
        assert with_gradients.requires_grad
        with torch.no_grad():
            result, own = layer(x[:1], residual=residual[:1], return_final_states=True, **options)
        torch.testing.assert_close(with_gradients.detach(), result)
        torch.testing.assert_close(states.detach(), own)
    assert "6, kernel_size=4" in repr(layer)


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_causal_of_half_types_with_a_weight_of_float32(device: str, dtype: torch.dtype) -> None:
    layer = sluice.nn.CausalConv1d(6, 4, activation="silu", post=torch.nn.Tanh()).to(device)
    x = torch.randn(2, 6, 21, device=device).to(dtype)
    trained, states = layer(x, return_final_states=True)
    assert trained.requires_grad
    with torch.no_grad():
        result, own = layer(x, return_final_states=True)
    assert trained.dtype == result.dtype == dtype
    assert_close(trained.detach(), result.double())
    assert torch.equal(states, own)
