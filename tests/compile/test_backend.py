"""`backend="sluice"` and `sluice.compile.passes` in torch.compile: results, recompiles, gradients, caches, export."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._inductor
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass

import sluice
from common import DTYPES, HALF_TYPES, assert_close, load_packaged, permuted
from compiled_graphs import Seen
from rows import naming
from sluice.compile import post_grad
from sluice.pack import on_tensor_cores


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    """No graph comes from a cache: they are looked at on their way. Compiled C++ may."""
    torch._dynamo.reset()
    with config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture(params=["backend", "passes"])
def compiled(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """The two ways to the same ops."""
    if request.param == "backend":
        yield lambda model, **options: torch.compile(model, backend="sluice", fullgraph=True, **options)
        return
    with config.patch(post_grad_custom_post_pass=sluice.compile.passes):
        yield lambda model, **options: torch.compile(model, fullgraph=True, **options)


class Block(torch.nn.Module):
    """Convolutions with activations, a residual, and at the end a linear layer with one of its own or nothing."""

    def __init__(self, is_linear: bool = True) -> None:
        super().__init__()
        self.first = torch.nn.Conv1d(6, 8, 3, padding=1)
        self.up = torch.nn.ConvTranspose1d(8, 8, 4, stride=2, padding=1)
        self.depthwise = torch.nn.Conv1d(8, 8, 5, padding=2, groups=8)
        self.last = torch.nn.Sequential(torch.nn.Linear(8, 5), torch.nn.GELU()) if is_linear else torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(F.leaky_relu(F.gelu(self.first(x)), 0.1))
        y = y + F.silu(self.depthwise(F.elu(y)))
        return self.last(y.mT)


FUSED = ["aten.permute.default", "sluice.conv1d.default", "sluice.conv1d.default", "sluice.conv_transpose1d.default"]
# On a GPU, convolutions of single precision that are not depthwise stay torch's without a guard on its TF32 setting.
DENSE_DTYPES = {"cpu": torch.float32, "cuda": torch.float16}


def tiny() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Conv1d(6, 4, 3), torch.nn.Tanh())


POINTWISE = ("leaky_relu", "silu", "elu", "expm1", "where", "sigmoid")


def test_results(compiled: Any, device: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Blocks of all dtypes in one graph; one of them has the linear layer, for which Inductor compiles C++."""
    seen = Seen(monkeypatch)
    blocks = torch.nn.ModuleList(Block(dtype == torch.float32).to(device, dtype) for dtype in DTYPES)
    inputs = [torch.randn(2, 6, 20).to(device, dtype) for dtype in DTYPES]

    def program(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [block(x) for block, x in zip(blocks, inputs, strict=True)]

    with torch.no_grad():
        results, eager = compiled(program)(inputs), program(inputs)
        for dtype, block, x, result, named in zip(DTYPES, blocks, inputs, results, eager, strict=True):
            with naming(dtype):
                assert_close(result, copy.deepcopy(block).double()(x.double()), factor=10)
                assert result.stride() == named.stride()
    [graph] = seen.graphs
    for dtype in DTYPES:
        with naming(dtype):
            calls = calls_behind(graph, inputs[0].shape, dtype)
            has_guard = request.node.callspec.params["compiled"] == "backend"
            is_fused = dtype in HALF_TYPES or (has_guard and on_tensor_cores(dtype, inputs[0].device))
            if device == "cuda" and not is_fused:
                assert [call for call in calls if call.startswith("sluice.")] == ["sluice.conv1d.default"]
                continue
            assert [call for call in FUSED if calls.count(call) < FUSED.count(call)] == []
            assert not [call for call in calls if any(word in call for word in POINTWISE)]
            assert sum("gelu" in call for call in calls) == 0  # the linear layer's is decomposed


def calls_behind(graph: torch.fx.GraphModule, shape: torch.Size, dtype: torch.dtype) -> list[str]:
    """The ops that compute with the only input of that shape and dtype."""
    of_all = [(node, node.meta.get("val")) for node in graph.graph.find_nodes(op="placeholder")]
    [x] = [node for node, value in of_all if (value.shape, value.dtype) == (shape, dtype)]
    found, level = dict[torch.fx.Node, None](), list(x.users)
    while level:
        found.update(dict.fromkeys(level))
        level = [user for node in level for user in node.users if user not in found]
    return [str(node.target) for node in found if node.op == "call_function"]


def test_two_compiles_for_all_lengths(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, model = Seen(monkeypatch), tiny()
    run = compiled(model)
    with torch.no_grad():
        for length in range(5, 55):
            x = torch.randn(2, 6, length)
            assert_close(run(x), model(x).double(), factor=10)
    assert len(seen.graphs) == 2


def test_batch_and_length_from_the_start(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, model = Seen(monkeypatch), Block()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 20), (3, 33), (5, 64), (4, 7)):
            x = torch.randn(batch, 6, length)
            assert_close(run(x), model(x).double(), factor=10)
    assert len(seen.graphs) == 1
    assert sum("sluice.conv" in call for call in seen.calls()) == 3


# --- gradients --------------------------------------------------------------------------------------------------------
def test_where_gradients_are_needed_everything_is_inductors(
    compiled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same model without them is sluice's."""
    seen, model = Seen(monkeypatch), tiny()
    twin, x, run = copy.deepcopy(model), torch.randn(2, 6, 20), compiled(model)
    with caplog.at_level(logging.DEBUG, "sluice.compile"):
        run(x).square().sum().backward()
    twin(x).square().sum().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    assert len(seen.graphs) == 2  # forwards and backwards
    assert not [call for call in seen.calls() if call.startswith("sluice.")]
    assert "gradients are needed" in caplog.text
    with torch.no_grad():
        assert_close(run(x), model(x).double(), factor=10)
    with torch.inference_mode():
        assert_close(run(x), model(x).double(), factor=10)
    assert [call for call in seen.calls() if call.startswith("sluice.")] == ["sluice.conv1d.default"] * 2
    model.requires_grad_(False)
    assert_close(run(x), model(x).double(), factor=10)


class Untold(CustomGraphPass):
    """The pass under a torch that does not tell it whether a graph is for inference."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        sluice.compile.passes(graph)

    def uuid(self) -> Any:
        return "untold"


def test_a_pass_that_is_not_told_finds_out(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, model, x = Seen(monkeypatch), tiny(), torch.randn(2, 6, 20)
    with config.patch(post_grad_custom_post_pass=Untold()):
        run = torch.compile(model, fullgraph=True)
        run(x).sum().backward()
        assert not [call for call in seen.calls() if call.startswith("sluice.")]
        with torch.no_grad():
            run(x)
        assert seen.calls().count("sluice.conv1d.default") == 1
        torch._dynamo.reset()
        model.requires_grad_(False)
        run(x)
        assert seen.calls().count("sluice.conv1d.default") == 2


# --- what torch passes on ---------------------------------------------------------------------------------------------
def test_autocast(compiled: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, model, x = Seen(monkeypatch), Block().to(device), torch.randn(2, 6, 20, device=device)
    with torch.no_grad(), torch.autocast(device, torch.bfloat16):
        result, expected = compiled(model)(x), model(x)
    assert result.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    assert sum("sluice.conv" in call for call in seen.calls()) == 3


def test_modes_and_options_are_inductors(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import compile_fx

    given: list[dict[str, Any]] = []
    original = compile_fx.compile_fx
    monkeypatch.setattr(
        compile_fx, "compile_fx",
        lambda *args, **kwargs: given.append(kwargs.get("config_patches")) or original(*args, **kwargs),
    )  # fmt: skip
    model, x = torch.nn.Sequential(torch.nn.Conv1d(2, 2, 3), torch.nn.ReLU()), torch.randn(1, 2, 9)
    with torch.no_grad():
        for options in ({"mode": "reduce-overhead"}, {"options": {"shape_padding": True}}):
            torch._dynamo.reset()
            assert_close(torch.compile(model, backend="sluice", **options)(x), model(x).double(), factor=10)
        with pytest.raises(Exception, match="no_such_option"):
            torch.compile(torch.nn.Conv1d(2, 2, 3), backend="sluice", options={"no_such_option": 1})(x)
    patches = [one for one in given if one]
    assert patches[0]["triton.cudagraphs"] is True
    assert patches[1]["shape_padding"] is True


def test_reduce_overhead(cuda: str) -> None:
    model = Block().to(cuda, torch.bfloat16)
    run = torch.compile(model, backend="sluice", mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 6, 200, device=cuda, dtype=torch.bfloat16)
            assert_close(run(x).clone(), copy.deepcopy(model).double()(x.double()), factor=10)


class Counting(CustomGraphPass):
    """A pass that somebody else has configured."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, graph: torch.fx.Graph) -> None:
        self.calls += any(str(node.target).startswith("sluice.") for node in graph.nodes)

    def uuid(self) -> Any:
        return "counting"


@pytest.mark.parametrize("wrap", [lambda one: one, lambda one: [one]], ids=["one", "list"])
def test_other_passes_run_as_well(wrap: Any) -> None:
    other, model, x = Counting(), torch.nn.Conv1d(2, 2, 3), torch.randn(1, 2, 9)
    with torch.no_grad(), config.patch(post_grad_custom_pre_pass=wrap(other)):
        torch.compile(model, backend="sluice")(x)
        torch._dynamo.reset()
        torch.compile(model, backend="sluice", options={"post_grad_custom_pre_pass": wrap(other)})(x)
    assert other.calls >= 1
    assert "counting" in post_grad.FoldConvolutions(others=(other,)).uuid()
    assert post_grad.FoldConvolutions(others=(lambda graph: None,)).uuid() is None


def test_frozen_parameters() -> None:
    model, x = Block().eval(), torch.randn(2, 6, 20)
    with torch.no_grad(), config.patch(freezing=True):
        assert_close(torch.compile(model, backend="sluice")(x), model(x).double(), factor=10)


# --- caches -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def caches() -> Iterator[None]:
    with (
        torch._inductor.utils.fresh_cache(),
        config.patch(fx_graph_cache=True),
        functorch_config.patch(enable_autograd_cache=True),
    ):
        yield


def test_caches_hit_until_the_pass_is_another(caches: None, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = torch.nn.Conv1d(2, 2, 3), torch.randn(1, 2, 9)  # Inductor compiles no C++ for it

    counters.clear()

    def misses() -> int:
        torch._dynamo.reset()
        with torch.no_grad():
            assert_close(compiled(model)(x), model(x).double(), factor=10)
        assert counters["inductor"]["fxgraph_cache_bypass"] == 0
        return counters["inductor"]["fxgraph_cache_miss"]

    assert [misses(), misses()] == [1, 1]
    monkeypatch.setattr(post_grad, "_hash_of_sources", lambda: "another")
    assert misses() == 2
    torch._dynamo.reset()
    with torch.no_grad(), config.patch(post_grad_custom_post_pass=None):
        torch.compile(model)(x)
    assert counters["inductor"]["fxgraph_cache_miss"] == 3


def test_the_two_ways_have_keys_of_their_own() -> None:
    assert sluice.compile.passes.uuid() != post_grad.FoldConvolutions(is_ahead=True).uuid()
    assert sluice.compile.passes.uuid() == post_grad.FoldConvolutions().uuid()


# --- export -----------------------------------------------------------------------------------------------------------
def test_export_and_aotinductor(device: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"device": device, "dtype": DENSE_DTYPES[device]}
    model, seen = Block().to(**options), Seen(monkeypatch)
    sizes = {"x": {0: torch.export.Dim("b", min=2, max=64), 2: torch.export.Dim("l", min=8, max=4096)}}
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(2, 6, 20, **options),), dynamic_shapes=sizes)
        path = torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(tmp_path / "block.pt2"),
            inductor_configs={"post_grad_custom_post_pass": sluice.compile.passes},
        )
        assert sum("sluice.conv" in call for call in seen.calls()) == 3
        run = load_packaged(path, device)
        for batch, length in ((2, 20), (3, 41)):
            x = torch.randn(batch, 6, length, **options)
            assert_close(run(x), model(x).double(), factor=10)


# --- strides ----------------------------------------------------------------------------------------------------------
@torch.library.custom_op("sluice_tests::second_in_memory", mutates_args=())
def second_in_memory(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x, (1,), (1,), 1).clone()


@second_in_memory.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(1)


def test_results_and_what_reads_memory_have_the_strides_that_they_had(compiled: Any) -> None:
    model, read = (torch.nn.Sequential(torch.nn.Conv1d(6, 8, 3), torch.nn.SiLU()) for _ in range(2))
    model.requires_grad_(False)
    read.requires_grad_(False)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return model(x), model[0](x).mT, second_in_memory(read(x))

    inputs = torch.randn(2, 6, 20), permuted(torch.randn(2, 6, 20))
    found = compiled(lambda *inputs: [program(x) for x in inputs])(*inputs)
    for layout, x, results in zip(("contiguous", "permuted"), inputs, found, strict=True):
        for result, expected in zip(results, program(x), strict=True):
            with naming(layout):
                assert_close(result, expected.double(), factor=10)
                assert result.stride() == expected.stride()


# --- control flow -----------------------------------------------------------------------------------------------------
def test_graphs_inside_of_graphs_and_buffers_that_are_written(compiled: Any) -> None:
    class Streaming(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first = torch.nn.Conv1d(4, 4, 3), torch.nn.Conv1d(4, 4, 3)
            self.register_buffer("past", torch.zeros(2, 4, 2))

        def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = F.gelu(self.conv(torch.cat([self.past, x], -1)))
            self.past.copy_(x[..., -2:])
            return y, torch.cond(chosen, lambda x: F.gelu(self.first(x)), lambda x: F.silu(self.first(x)) + 1, (x,))

    model = Streaming().requires_grad_(False)
    twin = copy.deepcopy(model)
    run = compiled(model)
    for chosen in (True, False, True):
        arguments = torch.randn(2, 4, 6), torch.tensor(chosen)
        for name, result, expected in zip(("buffer", "cond"), run(*arguments), twin(*arguments), strict=True):
            with naming(name, chosen):
                assert_close(result, expected.double(), factor=10)
