"""A chain given as text is the object that sluice.stages makes, in functions and in modules."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F

import sluice
from common import assert_close
from every_stage import SAMPLES
from sluice import stages
from sluice.chain import as_chain

WRITTEN = {
    "gelu": stages.gelu(),
    "gelu_tanh()": stages.gelu("tanh"),
    " leaky_relu | scale( 2 ) ": stages.leaky_relu() | stages.scale(2),
    "leaky_relu(.2)|add(-1e-3)": stages.leaky_relu(0.2) | stages.add(-0.001),
    "softplus(2)": stages.softplus(2),
    "clamp(-1)|clamp(-inf,5.)": stages.clamp(min=-1) | stages.clamp(max=5.0),
    "snake(0.5,0.25)|cast( bfloat16 )": stages.snake(0.5, 0.25) | stages.cast(torch.bfloat16),
    'relu|cpp("x | (a, \\"b\\")\\n",own,a=0.5, b=2)': stages.relu()
    | stages.cpp('x | (a, "b")\n', name="own", a=0.5, b=2),
    "": sluice.Chain(),
}


def parsed(text: str) -> sluice.Chain:
    return as_chain("transform", "chain", text)


def test_a_text_is_the_chain_of_stages() -> None:
    for text, chain in WRITTEN.items():
        assert parsed(text) == chain
        assert parsed(text).text == chain.text
        assert repr(parsed(text)) == repr(chain)
    for sample in SAMPLES.values():
        chain = sample(float)
        assert parsed(chain.text) == chain
        assert hash(parsed(chain.text)) == hash(chain)
    assert len(parsed("relu|scale(2)")) == 2
    assert pickle.loads(pickle.dumps(parsed("relu|scale(2)"))) == stages.relu() | stages.scale(2)


def test_references_take_a_chain_of_text() -> None:
    x = torch.randn(2, 4, 9, dtype=torch.float64)
    chain = sluice.nn.Conv1d(4, 4, 3, post="gelu|scale(2)").post
    assert torch.equal(sluice.reference.transform(x, chain), F.gelu(x) * 2)
    assert sluice.transform(x, "cast(float16)").dtype == torch.float16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing", "unknown stage 'nothing': it must be one of those in sluice.stages"),
        ("relu|", "a stage must follow '|'"),
        ("scale", "scale must have at least 1 parameter"),
        ("add($0)", "must be composed of sluice.stages when it has tensors"),
        ("scale(1_0)", "a parameter must be a number or an operand, got '1_0'"),
    ],
)
def test_a_text_that_is_no_chain_is_refused(text: str, words: str) -> None:
    x = torch.randn(1, 4, 9)
    calls = {
        "transform: chain": lambda: sluice.transform(x, text),
        "conv1d: post": lambda: sluice.conv1d(x, torch.randn(4, 1, 3), groups=4, post=text),
        "Conv1d: pre": lambda: sluice.nn.Conv1d(4, 4, 3, pre=text),
        "Transform: stages": lambda: sluice.nn.Transform(text),
    }
    for place, call in calls.items():
        with pytest.raises(ValueError) as caught:
            call()
        assert place in str(caught.value)
        assert words in str(caught.value)


def modules() -> dict[str, tuple[torch.nn.Module, torch.nn.Module]]:
    """Modules with a chain of text, and torch's for the same."""
    made = {
        "Conv1d": (sluice.nn.Conv1d(4, 4, 3, pre="tanh", post="gelu"), torch.nn.Conv1d(4, 4, 3)),
        "ConvTranspose1d": (
            sluice.nn.ConvTranspose1d(4, 4, 3, pre="tanh", post="gelu"), torch.nn.ConvTranspose1d(4, 4, 3)
        ),
        "CausalConv1d": (
            sluice.nn.CausalConv1d(4, 3, pre="tanh", post="gelu"), torch.nn.Conv1d(4, 4, 3, padding=2, groups=4)
        ),
    }  # fmt: skip
    for ours, theirs in made.values():
        theirs.load_state_dict(ours.state_dict())
    pairs = {
        name: (one, torch.nn.Sequential(torch.nn.Tanh(), other, torch.nn.GELU())) for name, (one, other) in made.items()
    }
    return pairs | {
        "Transform": (sluice.nn.Transform("tanh|gelu"), torch.nn.Sequential(torch.nn.Tanh(), torch.nn.GELU()))
    }


@pytest.mark.parametrize("name", ["Conv1d", "ConvTranspose1d", "CausalConv1d", "Transform"])
def test_modules_with_a_text(name: str) -> None:
    ours, theirs = modules()[name]
    x = torch.randn(2, 4, 9)
    length = 9 if name == "CausalConv1d" else None
    expected = theirs(x)[..., :length]
    torch.testing.assert_close(ours(x.requires_grad_()), expected)  # by torch, with gradients
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    averaged = torch.optim.swa_utils.AveragedModel(ours)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False), averaged]
    with torch.no_grad():
        for one in [ours, *copies]:
            assert_close(one(x), expected.double().detach(), factor=10)
    assert repr(copies[0]) == repr(ours)
    assert "gelu()" in repr(ours)


def test_compiled_graphs_take_a_text(fresh_compiler: None) -> None:
    layer = sluice.nn.Conv1d(4, 4, 3, groups=4, post="gelu|scale(2)")

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(layer(x), w, groups=4, pre="leaky_relu(0.1)", post="tanh")

    x, w = torch.randn(2, 4, 16), torch.randn(4, 1, 3)
    with torch.no_grad():
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, w), function(x, w))
