"""torch.compile without graph breaks or recompiles, torch.export, CUDA graphs: the ops inside compiled models."""

from __future__ import annotations

import io

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import sluice
from common import assert_close, permuted
from sluice import stages

pytestmark = pytest.mark.usefixtures("fresh_compiler")


class Block(torch.nn.Module):
    """Every op once, through the raw ops and through the functions."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("dense", torch.randn(6, 6, 3))
        self.register_buffer("depthwise", torch.randn(6, 1, 4))
        self.register_buffer("gain", torch.randn(6, 1))
        self.register_buffer("column", torch.randn(3))
        self.register_buffer("row", torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.sluice.conv1d(x, self.dense, None, 1, 1, 1, 1, post="gelu")
        y = sluice.conv1d(y, self.depthwise, padding="same", groups=6, pre=stages.relu(), post=stages.mul(self.gain))
        y = sluice.conv_transpose1d(y, self.dense, stride=2, padding=1, pre=stages.relu(), post=stages.mul(self.gain))
        y = torch.ops.sluice.conv_transpose1d(y[..., ::2], self.depthwise, None, 1, 0, 0, 6, post="silu")[..., 3:]
        y, states = sluice.causal_conv1d(y, self.depthwise[:, 0], activation="silu", return_final_states=True)
        y = sluice.causal_conv1d(y, self.dense, pre=stages.relu(), post=stages.mul(self.gain))
        y = sluice.causal_conv_transpose1d(y, self.dense, stride=2, pre=stages.relu(), post=stages.mul(self.gain))
        y = sluice.causal_conv1d(y, self.dense, stride=2, padding_mode="replicate")
        # (B, 6, L) as B images of 6 rows.
        y = sluice.filter2d(y, (self.column, self.row), padding=(1, 2), post=stages.mul(self.gain) | stages.tanh())
        y = sluice.transform(y, stages.add(x) | stages.scale(0.5) | stages.silu())
        return y + states.sum()


def inplace(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    sluice.transform(y, stages.relu(), out=y)
    return y + 1


def test_fullgraph_with_dynamic_shapes_compiles_once(device: str) -> None:
    """Also: `out` is functionalised."""
    model = Block().to(device)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return model(x), inplace(x)

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(program, backend=counter, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for batch, length in ((2, 20), (3, 33), (5, 64), (4, 7)):
            x = torch.randn(batch, 6, length, device=device)
            result, written = compiled(x)
            assert_close(result, model(x).double(), factor=10)
            assert torch.equal(written, (x * 2).relu() + 1)
    assert counter.frame_count == 1


def test_channels_last_layouts_survive(device: str) -> None:
    model = Block().to(device)
    x = permuted(torch.randn(2, 6, 20, device=device))
    # In Inductor they are compiled by test_fakes.py's test_exported_and_packaged.
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        result = compiled(x)
        assert_close(result, model(x).double(), factor=10)
        assert result.stride() == model(x).stride()


def test_a_tensor_in_a_numbers_place_never_recompiles(device: str) -> None:
    def scaled(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return sluice.transform(x, stages.scale(factor) | stages.relu())

    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(scaled, backend=counter, fullgraph=True)
    x = torch.randn(5, device=device)
    for value in (1.0, -2.0, 0.5):
        assert torch.equal(compiled(x, torch.tensor(value, device=device)), (x * value).relu())
    assert counter.frame_count == 1


def test_a_number_is_a_constant(device: str) -> None:
    compiled = torch.compile(
        lambda x, factor: sluice.transform(x, stages.scale(factor)), fullgraph=True, backend="eager"
    )
    x = torch.randn(5, device=device)
    for value in (1.0, 2.5, 3, 4):
        assert torch.equal(compiled(x, value), x * value)


def test_export_round_trip(device: str) -> None:
    model, x = Block().to(device), torch.randn(2, 6, 20, device=device)
    with torch.no_grad():
        program = torch.export.export(
            model,
            (x,),
            dynamic_shapes={"x": {0: torch.export.Dim("b", min=2), 2: torch.export.Dim("l", min=8, max=4096)}},
        )
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer).module()
        y = torch.randn(3, 6, 31, device=device)
        assert_close(loaded(y), model(y).double(), factor=10)
    assert "'add($0,1.0)|scale(0.5)|silu()'" in program.graph_module.code


def test_fake_results_match_real_ones(device: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, w = permuted(torch.randn(2, 6, 20, device=device)), torch.randn(6, 1, 4, device=device)
    with FakeTensorMode() as mode:
        fake = sluice.conv1d(mode.from_tensor(x), mode.from_tensor(w), groups=6, post=stages.cast(torch.float16))
    real = sluice.conv1d(x, w, groups=6, post=stages.cast(torch.float16))
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)
    meta = sluice.transform(x.to("meta"), stages.silu())
    assert meta.shape == x.shape
    assert meta.stride() == x.stride()


def test_reduce_overhead(cuda: str) -> None:
    model = Block().to(cuda)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(2, 6, 200, device=cuda)
            assert_close(compiled(x).clone(), model(x).double(), factor=10)


def test_capture_in_a_cuda_graph(cuda: str) -> None:
    model = Block().to(cuda)
    x = torch.randn(2, 6, 200, device=cuda)
    with torch.no_grad():
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = model(x)
        for _ in range(3):
            x.normal_()
            result.fill_(float("nan"))
            graph.replay()
            assert torch.equal(result, model(x))
