"""Chains as Python objects: immutable, hashable, printable, picklable; one table of stages on both sides."""

from __future__ import annotations

import inspect
import pickle

import pytest
import torch

import sluice
from every_stage import SAMPLES, stage_of
from sluice import stages
from sluice._library import stage_signatures

# What the functions decide in Python: `approximate` chooses between two stages, None is what the docstring says.
DECIDED_IN_PYTHON = {
    "gelu": {"approximate": "none"},
    "clamp": {"min": None, "max": None},
    "snake": {"beta": None},
}
NOT_IN_THE_TABLE = {"cast", "cpp"}  # which have no parameters that are numbers by place


def test_composition_and_text() -> None:
    y = torch.randn(3)
    chain = stages.scale(1.5) | stages.add(y, alpha=2) | stages.mul(y) | stages.silu()
    assert chain.text == "scale(1.5)|add($0,2.0)|mul($0)|silu()"
    assert len(chain.operands) == 1
    assert chain.operands[0] is y
    assert str(chain) == "scale(1.5) | add(Tensor(3,), 2) | mul(Tensor(3,)) | silu()"
    assert [str(stage) for stage in chain] == ["scale(1.5)", "add(Tensor(3,), 2)", "mul(Tensor(3,))", "silu()"]
    assert len(chain) == 4


def test_equality_hash_and_pickle() -> None:
    y = torch.randn(3)
    assert stages.scale(2) | stages.relu() == stages.scale(2.0) | stages.relu()
    assert hash(stages.scale(2)) == hash(stages.scale(2.0))
    assert stages.add(y) == stages.add(y)
    assert stages.add(y) != stages.add(y.clone())
    assert stages.relu() != stages.silu()
    assert stages.relu() != "relu()"
    chain = stages.add(y) | stages.elu(0.5)
    copy = pickle.loads(pickle.dumps(chain))
    x = torch.randn(3)
    assert copy.text == chain.text
    assert torch.equal(copy(x), chain(x))


def test_a_chain_is_immutable_and_composes_only_with_chains() -> None:
    chain = stages.relu()
    with pytest.raises(AttributeError):
        chain.text = "silu()"  # type: ignore[misc]
    with pytest.raises(TypeError):
        chain | torch.relu  # type: ignore[operator]
    with pytest.raises(TypeError, match="scale: a parameter must be a number or a tensor, got list"):
        stages.scale([1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.1, 1e-45, 5e-324, 1.7976931348623157e308, float("inf"), -0.0, 2**60, 1 / 3])
def test_numbers_keep_every_bit(value: float) -> None:
    x = torch.ones(1, dtype=torch.float64)
    assert sluice.transform(x, stages.scale(value)).item() == float(value)


def test_the_functions_agree_with_the_table() -> None:
    signatures = stage_signatures()
    assert set(stages.__all__) - {"Chain"} == set(signatures) - {"gelu_tanh"} | NOT_IN_THE_TABLE
    for name in set(stages.__all__) - {"Chain"} - NOT_IN_THE_TABLE:
        found = {p.name: p.default for p in inspect.signature(getattr(stages, name)).parameters.values()}
        wanted = {key: inspect.Parameter.empty if d is None else d for key, d in signatures[name].items()}
        wanted |= DECIDED_IN_PYTHON.get(name, {})
        assert list(found.items()) == list(wanted.items()), name


def test_every_stage_is_in_the_reference_once() -> None:
    assert set(sluice.reference.STAGES) == set(stage_signatures())


def test_every_stage_has_a_sample() -> None:
    assert {stage_of(sample) for sample in SAMPLES} == set(stage_signatures()) | {"cast"}
    for sample, make in SAMPLES.items():
        chain = make(lambda value: value)
        assert stage_of(sample) in [name for name, _ in chain.parts]
        for name, values in chain.parts:
            assert name == "cast" or len(values) == len(stage_signatures()[name]), name


def test_pickles_of_older_versions_load() -> None:
    chain = stages.elu(0.5) | stages.cpp("x * a", a=2.0)
    pickled = pickle.dumps(chain, protocol=0)
    older = pickled.replace(b"csluice.chain\n", b"csluice.stages\n")  # where these classes were once
    assert older != pickled
    assert pickle.loads(older) == chain
