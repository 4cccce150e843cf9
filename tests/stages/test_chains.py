"""Chains as Python objects: immutable, hashable, printable, picklable; one table of stages on both sides."""

from __future__ import annotations

import copy
import inspect
import pathlib
import pickle

import pytest
import torch

import sluice
from every_stage import SAMPLES, stage_of
from sluice import stages
from sluice._library import stage_signatures

# Arguments decided in Python: `approximate` chooses between two stages, None is what the docstring says.
DECIDED_IN_PYTHON = {
    "gelu": {"approximate": "none"},
    "clamp": {"min": None, "max": None},
    "snake": {"beta": None},
}
NOT_IN_THE_TABLE = {"cast", "cpp", "from_module"}  # which have no parameters that are numbers by place


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
    assert stages.add(y) == stages.add(y.clone())
    for other in (y + 1, y.double(), y[None], -y):
        assert stages.add(y) != stages.add(other)
    assert stages.relu() != stages.silu()
    assert stages.relu() != "relu()"
    chain = stages.add(y) | stages.elu(0.5)
    copied = pickle.loads(pickle.dumps(chain))
    x = torch.randn(3)
    assert copied.text == chain.text
    assert torch.equal(copied(x), chain(x))


def awkward_tensors(device: str) -> dict[str, torch.Tensor]:
    """Operands whose copies are hard to compare: unequal to themselves, strided, or with other memory."""
    x = torch.randn(4, 6, device=device)
    return {
        "NaN": torch.full((3,), float("nan"), device=device),
        "0-d": torch.tensor(2.0, device=device),
        "empty": torch.empty(0, 3, device=device),
        "strided": x.t()[1:4:2],
        "expanded": x[:1].expand(5, 6),
        "negated": torch.complex(x, x).conj().imag,
        "parameter": torch.nn.Parameter(x),
        "half": x.bfloat16(),
    }


@pytest.mark.parametrize("name", awkward_tensors("cpu"))
def test_pickled_and_copied_chains_equal_their_originals(device: str, name: str) -> None:
    tensor = awkward_tensors(device)[name]
    chain = stages.mul(tensor) | stages.gelu("tanh") | stages.clamp(max=2) | stages.cast(torch.float16)
    assert chain == chain
    for made in (copy.copy(chain), copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert made == chain
        assert hash(made) == hash(chain)
        assert {chain: 1}[made] == 1
    assert stages.mul(torch.tensor(0.0)) != stages.mul(torch.tensor(-0.0))  # because their results differ


def test_chains_of_tensors_without_memory_compare() -> None:
    y = torch.ones(3, device="meta")
    assert stages.add(y) == stages.add(y)
    assert stages.add(y) != stages.add(torch.ones(3, device="meta"))
    assert stages.add(y) != stages.add(torch.ones(3))


def test_torch_save_and_the_default_load(device: str, tmp_path: pathlib.Path) -> None:
    y = torch.randn(3, device=device)
    chain = stages.scale(2) | stages.add(y) | stages.gelu("tanh") | stages.cast(torch.bfloat16)
    torch.save({"chain": chain, "gain": y}, tmp_path / "chain.pt")
    loaded = torch.load(tmp_path / "chain.pt")
    assert loaded["chain"] == chain
    assert loaded["chain"].operands[0] is loaded["gain"]
    own = stages.cpp("x * a", a=2.0)
    torch.save(own, tmp_path / "own.pt")
    with pytest.raises(pickle.UnpicklingError, match="CppSource"):
        torch.load(tmp_path / "own.pt")  # which is code
    assert torch.load(tmp_path / "own.pt", weights_only=False) == own


@pytest.mark.parametrize(
    "parts",
    [
        (("cpp", ('"__trap()"', "f")),),
        (("scale", ('1)|cpp("__trap()",f',)),),
        (("cast", ('float16)|cpp("__trap()",f',)),),
        (("", ('cpp("__trap()",f)',)),),
    ],
)
def test_a_file_that_smuggles_code_is_refused(tmp_path: pathlib.Path, parts: tuple) -> None:
    torch.save(sluice.Chain(parts), tmp_path / "chain.pt")
    with pytest.raises(ValueError, match="Chain: a pickle must hold stages of sluice.stages"):
        torch.load(tmp_path / "chain.pt")


class Gain(torch.nn.Module):
    """The documented way: the tensors are the module's, the chain is made of them in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(4, 1), requires_grad=False)
        self.register_buffer("offset", torch.rand(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (stages.mul(self.gain) | stages.add(self.offset) | stages.silu())(x)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_modules_chain_follows_its_tensors(device: str, compiled: bool) -> None:
    def wanted(x: torch.Tensor, of: torch.nn.Module) -> torch.Tensor:
        return torch.nn.functional.silu(x * of.gain.to(x) + of.offset.to(x))

    module, x = Gain().to(device), torch.randn(2, 4, 8, device=device)
    run = torch.compile(module, fullgraph=True, backend="aot_eager") if compiled else module
    torch.testing.assert_close(run(x), wanted(x, module))
    module.load_state_dict(Gain().to(device).state_dict(), assign=True)
    torch.testing.assert_close(run(x), wanted(x, module))
    module.load_state_dict(Gain().state_dict())
    torch.testing.assert_close(run(x), wanted(x, module))
    module.double()
    torch.testing.assert_close(run(x.double()), wanted(x.double(), module))
    again = copy.deepcopy(module)
    again.gain.zero_()
    torch.testing.assert_close(again(x.double()), wanted(x.double(), again))


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
        assert stage_of(sample) in [name for name, _ in chain.stages]
        for name, values in chain.stages:
            assert name == "cast" or len(values) == len(stage_signatures()[name]), name


def test_pickles_of_older_versions_load() -> None:
    chain = stages.elu(0.5) | stages.cpp("x * a", a=2.0)
    pickled = pickle.dumps(chain, protocol=0)
    # Where these classes were once, when a chain was pickled by its class.
    older = pickled.replace(b"csluice.chain\nrestored\n", b"csluice.stages\nChain\n")
    older = older.replace(b"csluice.chain\n", b"csluice.stages\n")
    assert older != pickled
    assert pickle.loads(older) == chain
