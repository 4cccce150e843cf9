"""Real networks under `sluice.replace` and `backend="sluice"`: the results of eager torch, at two lengths, and undone.

A result is right where its error against float64 is at most three times eager torch's. benchmarks/model_zoo.py has the
networks: of `small` size here, and of `real` size on a GPU.
"""

from __future__ import annotations

import copy
import functools
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import sluice
from common import DTYPES, NARROW_TYPES, ROOT
from rows import naming
from sluice.bench.check import relative_error
from sluice.demo.measure import in_float64
from sluice.pack import on_tensor_cores
from snippets import snippets

sys.path.append(str(ROOT / "benchmarks"))
zoo = importlib.import_module("model_zoo")

NAMES = list(zoo.ZOO)
# Run in all dtypes on the CPU, the others in float32: a GPU runs all. They have every kind of fold.
OF_ALL_TYPES = ["dac_decoder", "conformer_convolution"]
COMPILED = ["speecht5_hifigan", "dac_decoder", "whisper_stem"]
FACTOR, TINY = 3.0, {torch.float64: 1e-12}  # 1e-6 in other dtypes
CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.ConvTranspose1d)
TORCHS = "torch's own kernel computes it"
# Calls of sluice's ops at least, of small networks on the CPU: convolutions with one channel a group, and activations.
SLUICES = dict.fromkeys(NAMES, 0) | {
    "speecht5_hifigan": 3,
    "vits_hifigan": 2,
    "dac_decoder": 12,
    "mimi_decoder": 1,
    "qwen3_code2wav": 15,
    "bigvgan": 34,
    "conformer_convolution": 1,
}


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    """No gradients, and torch's kernels that give the same bits each time."""
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def calls_of_sluice(network: torch.nn.Module, x: torch.Tensor) -> int:
    """Calls of sluice's ops. A dispatch mode could not count them: nothing is folded in one."""
    network(x)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        network(x)
    return sum(event.name.startswith("sluice::") and "::_" not in event.name for event in recorded.events())


def is_sluices(module: torch.nn.Module) -> bool:
    return any(base.__module__.startswith("sluice.") for base in type(module).__mro__)


class Subject:
    """A network, what eager torch makes of its inputs, and how far from float64 that is."""

    def __init__(self, name: str, device: str, dtype: torch.dtype, size: str, seed: int) -> None:
        if (reason := zoo.ZOO[name].missing()) is not None:
            pytest.skip(reason)
        self.name = name
        self.module, self.inputs = zoo.ZOO[name].build(device, dtype, size, seed)
        # Real sizes are compared in their first row, whose float64 is quick.
        self.rows = slice(0, 1 if size == "real" else None)
        self.eager = [self.module(x) for x in self.inputs]
        self.exact = [in_float64(self.module, x[self.rows]) for x in self.inputs]
        self.limits = [
            FACTOR * relative_error(y[self.rows], exact) + TINY.get(dtype, 1e-6)
            for y, exact in zip(self.eager, self.exact, strict=True)
        ]

    def check(self, network: Any) -> None:
        """The network's results for both inputs are right."""
        for x, eager, exact, limit in zip(self.inputs, self.eager, self.exact, self.limits, strict=True):
            result = network(x)
            assert (result.shape, result.dtype) == (eager.shape, eager.dtype)
            error = relative_error(result[self.rows], exact)
            assert error <= limit, f"length {x.shape}: error {error:.2e}, three times eager's {limit:.2e}"
            assert relative_error(result, eager) <= 4 / FACTOR * limit  # every row
            assert result.isfinite().all()

    def replaced(self) -> Any:
        """A copy that is replaced; the `Replacement`."""
        replacement = sluice.replace(copy.deepcopy(self.module))
        self.check_classes(replacement.model, [row.module for row in replacement.rows if row.note == TORCHS])
        return replacement

    def check_classes(self, network: torch.nn.Module, torchs: list[str]) -> None:
        """Every convolution is sluice's, except the convolutions of these names."""
        parts = [name for name, part in self.module.named_modules() if isinstance(part, CONVOLUTIONS)]
        assert parts
        assert [name for name in parts if not is_sluices(network.get_submodule(name))] == torchs

    def check_calls(self, network: torch.nn.Module) -> None:
        """Sluice's ops run: on a GPU's tensor cores for every convolution, else where torch's are no equal."""
        ran = 0

        def count(*_: Any) -> None:
            nonlocal ran
            ran += 1

        x = self.inputs[1]
        layers = [layer for layer in self.module.modules() if isinstance(layer, CONVOLUTIONS)]
        handles = [layer.register_forward_hook(count) for layer in layers]
        self.module(x)
        for handle in handles:
            handle.remove()
        y = self.eager[0]
        least = ran if y.is_cuda and on_tensor_cores(y.dtype, y.device) else SLUICES[self.name]
        assert ran > 0
        assert calls_of_sluice(network, x) >= least


@functools.lru_cache(maxsize=8)
def subject(name: str, device: str, dtype: torch.dtype, size: str = "small", seed: int = 0) -> Subject:
    return Subject(name, device, dtype, size, seed)


def classes(module: torch.nn.Module) -> dict[str, type]:
    return {name: type(part) for name, part in module.named_modules()}


def bits(module: torch.nn.Module, inputs: Any) -> list[torch.Tensor]:
    return [module(x) for x in inputs]


def same_bits(results: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))


# --- sluice.replace ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_replaced(name: str, device: str) -> None:
    """All checks of a network, which is traced once in each dtype."""
    for dtype in DTYPES if device == "cuda" or name in OF_ALL_TYPES else (torch.float32,):
        with naming(dtype):
            check_replaced(*(subject(name, device, dtype, seed=seed) for seed in (0, 1)))
        subject.cache_clear()


def check_replaced(first: Subject, second: Subject) -> None:
    """A network with the first one's weights, then with the second one's."""
    network = copy.deepcopy(first.module)
    before = classes(network)
    dry = str(sluice.replace(network, dry_run=True))
    assert classes(network) == before
    replacement = sluice.replace(network)
    first.check_classes(network, [row.module for row in replacement.rows if row.note == TORCHS])
    first.check(network)
    first.check_calls(network)
    assert network.state_dict().keys() == first.module.state_dict().keys()
    for part, kind in before.items():
        if issubclass(kind, CONVOLUTIONS):
            assert part in dry
            assert part in str(replacement)
    results = bits(network, first.inputs)
    check_again(network, first, results)
    copied = copy.deepcopy(network)
    check_copied(copied, first, second)
    assert same_bits(bits(network, first.inputs), results)
    network.load_state_dict(second.module.state_dict())
    second.check(network)
    replacement.undo()
    assert classes(network) == before
    assert same_bits(bits(network, second.inputs), second.eager)
    second.check(copied)


def check_again(network: torch.nn.Module, found: Subject, results: list[torch.Tensor]) -> None:
    """A second replacement changes nothing, nor does its undoing."""
    after = classes(network)
    again = sluice.replace(network)
    assert classes(network) == after
    again.undo()
    assert classes(network) == after
    assert same_bits(bits(network, found.inputs), results)


def check_copied(copied: torch.nn.Module, first: Subject, second: Subject) -> None:
    """A copy is right, and follows weights that are loaded after its first call."""
    first.check(copied)
    results = bits(copied, first.inputs)
    copied.load_state_dict(second.module.state_dict())
    second.check(copied)
    second.check_calls(copied)
    assert not same_bits(bits(copied, first.inputs), results)


@pytest.mark.parametrize("name", ["speecht5_hifigan", "bigvgan"])
def test_it_trains(name: str, device: str) -> None:
    """Gradients are torch's gradients, through weight_norm too."""
    found = subject(name, device, torch.float64)
    networks = [copy.deepcopy(found.module).requires_grad_(True) for _ in range(2)]
    sluice.replace(networks[1])
    with torch.enable_grad():
        for network in networks:
            network(found.inputs[0]).square().sum().backward()
    theirs, ours = (dict(network.named_parameters()) for network in networks)
    assert ours.keys() == theirs.keys()
    for parameter, expected in theirs.items():
        torch.testing.assert_close(ours[parameter].grad, expected.grad, msg=parameter)
    assert all(parameter.grad.any() for parameter in ours.values())


def test_wrong_weights_are_seen() -> None:
    """By the smallest change that a wrong kernel could make: one layer's weight is 1 % off."""
    found = subject("speecht5_hifigan", "cpu", torch.float32)
    network = found.replaced().model
    found.check(network)
    network.resblocks[1].convs2[0].weight.mul_(1.01)
    with pytest.raises(AssertionError, match="three times eager's"):
        found.check(network)


def test_a_network_that_is_not_replaced_is_seen() -> None:
    found = subject("bigvgan", "cpu", torch.float32)
    with pytest.raises(AssertionError):
        found.check_classes(found.module, [])
    with pytest.raises(AssertionError):
        found.check_calls(found.module)


def test_the_table_in_the_documents_is_todays(capsys: pytest.CaptureFixture[str]) -> None:
    code, table = snippets((ROOT / "docs" / "models.md").read_text())[:2]
    assert (code.language, table.language) == ("python", "text")
    exec(compile(code.text, "models.md", "exec"), {"__name__": "models"})
    assert capsys.readouterr().out == table.text


# --- compiled ---------------------------------------------------------------------------------------------------------
def calls_in_code(network: Any, x: torch.Tensor) -> int:
    """The calls of sluice's convolutions in what torch.compile makes of the network."""
    from torch._inductor.utils import run_and_get_code

    with torch._inductor.config.patch(force_disable_caches=True):
        _, code = run_and_get_code(network, x)
    return "\n".join(code).count("torch.ops.sluice.conv")


@pytest.mark.parametrize("name", COMPILED)
def test_backend(name: str, device: str) -> None:
    # Not every GPU has kernels for dense convolutions of float32.
    found = subject(name, device, torch.float16 if device == "cuda" else torch.float32)
    torch._dynamo.reset()
    # Compiled once for all lengths, except the smallest network: its second length compiles again.
    network = torch.compile(found.module, backend="sluice", dynamic=None if name == "whisper_stem" else True)
    assert calls_in_code(network, found.inputs[0]) > 0
    found.check(network)


def test_replaced_and_compiled(device: str) -> None:
    """Sluice's kernel of the depthwise convolution stays; what was folded is the compiler's again."""
    found = subject("conformer_convolution", device, torch.float32)
    torch._dynamo.reset()
    network = torch.compile(found.replaced().model, fullgraph=True, dynamic=True)
    assert calls_in_code(network, found.inputs[0]) > 0
    found.check(network)


# --- on a GPU ---------------------------------------------------------------------------------------------------------
def check_graph(found: Subject, other: Subject) -> None:
    """A CUDA graph of the replaced network is right, and follows new inputs and new weights."""
    network = found.replaced().model
    x = found.inputs[0].clone()
    network(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = network(x)

    def replay(given: torch.Tensor) -> torch.Tensor:
        x.copy_(given)
        if result.is_floating_point():
            result.fill_(float("nan"))
        graph.replay()
        return result

    for one in (found, other):
        network.load_state_dict(one.module.state_dict())
        y = replay(one.inputs[0])[one.rows]
        assert relative_error(y, one.exact[0]) <= one.limits[0]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
@pytest.mark.parametrize("name", [name for name, entry in zoo.ZOO.items() if entry.capturable])
def test_cuda_graph(name: str, dtype: torch.dtype, cuda: str) -> None:
    check_graph(*(subject(name, cuda, dtype, seed=seed) for seed in (0, 1)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_real_size(name: str, cuda: str) -> None:
    subject.cache_clear()
    found = subject(name, cuda, torch.float16, "real")
    replacement = found.replaced()
    found.check(replacement.model)
    found.check_calls(replacement.model)
    if zoo.ZOO[name].capturable:
        check_graph(found, subject(name, cuda, torch.float16, "real", seed=1))
    replacement.undo()
    assert same_bits(bits(replacement.model, found.inputs), found.eager)
    subject.cache_clear()
    torch.cuda.empty_cache()


@pytest.mark.gpu
@pytest.mark.parametrize("name", COMPILED)
def test_real_size_with_the_backend(name: str, cuda: str) -> None:
    subject.cache_clear()
    found = subject(name, cuda, torch.float16, "real")
    torch._dynamo.reset()
    found.check(torch.compile(found.module, backend="sluice"))
    subject.cache_clear()
    torch.cuda.empty_cache()
