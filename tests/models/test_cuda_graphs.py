"""`sluice.replace(model, cuda_graphs=True)`: captured calls have eager's results, whatever happens between them."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sluice
from sluice.compile.cuda_graphs import CudaGraphs
from sluice.replace.entry import entry_of


class Residual(nn.Module):
    """Convolutions with activations, a sum, and a norm whose weight is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 16, 3, padding=1))
        self.second = nn.Conv1d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: torch.Tensor, flag: bool = False) -> Any:
        y = torch.tanh(self.second(F.gelu(self.first(F.leaky_relu(x, 0.1)))))
        return (x + y, y.mean(-1)) if flag else x + y


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def pair(device: str, **options: Any) -> tuple[nn.Module, nn.Module, sluice.Replacement]:
    torch.manual_seed(3)
    theirs = Residual().eval().to(device)
    ours = copy.deepcopy(theirs)
    return theirs, ours, sluice.replace(ours, cuda_graphs=True, **options)


def captures(model: nn.Module) -> CudaGraphs:
    entry = entry_of(model)
    assert entry is not None
    found: CudaGraphs = entry.graphs.cuda_graphs
    return found


def check(ours: nn.Module, theirs: nn.Module, length: int, batch: int = 2, **options: Any) -> None:
    x = torch.randn(batch, 16, length).to(next(theirs.parameters()).device)  # no GPU draws during a thread's capture
    torch.testing.assert_close(ours(x, **options), theirs(x, **options), rtol=2e-3, atol=2e-3)


def test_on_the_cpu_it_does_nothing() -> None:
    theirs, ours, replacement = pair("cpu")
    for length in (9, 9, 9, 12):
        check(ours, theirs, length)
    assert len(captures(ours)) == 0
    assert replacement.rows[-1].now == "Residual, 0 CUDA graphs"
    assert type(replacement.undo()) is Residual


@pytest.mark.gpu
def test_calls_are_captured_at_the_second_of_a_length(cuda: str) -> None:
    theirs, ours, replacement = pair(cuda)
    for count, length in ((0, 9), (1, 9), (1, 9), (1, 12), (2, 12), (2, 9), (2, 12)):
        check(ours, theirs, length)
        assert len(captures(ours)) == count
    assert replacement.rows[-1].now == "Residual, 2 CUDA graphs"
    for _ in range(3):
        check(ours, theirs, 9, flag=True)
    for length in range(20, 40):
        check(ours, theirs, length)
        check(ours, theirs, length)
    assert len(captures(ours)) == 16
    check(ours, theirs, 9)
    replacement.undo()
    check(ours, theirs, 9)


@pytest.mark.gpu
def test_results_are_never_overwritten(cuda: str) -> None:
    theirs, ours, _ = pair(cuda)
    inputs = [torch.randn(2, 16, 30, device=cuda) for _ in range(5)]
    results = [ours(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, theirs(x), rtol=2e-3, atol=2e-3)
    assert len({result.data_ptr() for result in results}) == 5


@pytest.mark.gpu
def test_weights_may_change(cuda: str) -> None:
    theirs, ours, _ = pair(cuda)
    for _ in range(3):
        check(ours, theirs, 30)
    for one in (theirs, ours):
        torch.manual_seed(9)
        for parameter in one.parameters():
            parameter.copy_(torch.randn_like(parameter))
    for _ in range(3):
        check(ours, theirs, 30)
    for one in (theirs, ours):
        one.second.weight = nn.Parameter(one.second.weight * 2)
    for _ in range(3):
        check(ours, theirs, 30)
    for one in (theirs, ours):
        one.half().float()
    for _ in range(3):
        check(ours, theirs, 30)


@pytest.mark.gpu
def test_copies_pickles_streams_and_threads(cuda: str) -> None:
    theirs, ours, _ = pair(cuda)
    for _ in range(3):
        check(ours, theirs, 30)
    plain = sluice.replace(nn.Sequential(nn.Conv1d(16, 16, 3, groups=16), nn.ReLU()).eval().to(cuda), cuda_graphs=True)
    again = pickle.loads(pickle.dumps(plain.model))
    for _ in range(3):
        x = torch.randn(2, 16, 30, device=cuda)
        torch.testing.assert_close(again(x), plain.model(x))
    assert len(captures(again)) == len(captures(plain.model)) == 1
    for one in (copy.deepcopy(ours),):
        for _ in range(3):
            check(one, theirs, 30)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            check(ours, theirs, 30)
    with torch.inference_mode():
        check(ours, theirs, 30)
        check(ours, theirs, 31)
        check(ours, theirs, 31)
    check(ours, theirs, 31)
    failures: list[BaseException] = []

    def work(length: int) -> None:
        try:
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    check(ours, theirs, length)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(length,)) for length in (30, 31, 30, 40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class Noisy(Residual):
    def forward(self, x: torch.Tensor, flag: bool = False) -> Any:
        return F.dropout(super().forward(x), 0.5, training=True)


class Writing(Residual):
    def forward(self, x: torch.Tensor, flag: bool = False) -> Any:
        y = super().forward(x)
        x.zero_()
        return y


class Returning(Residual):
    def forward(self, x: torch.Tensor, flag: bool = False) -> Any:
        return super().forward(x), x[:, :3]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Noisy, "draws random numbers"),
        (Writing, "writes to an input"),
        (Returning, "a result may be memory of an input"),
    ],
)
def test_what_is_not_captured(cuda: str, kind: type[Residual], reason: str) -> None:
    theirs = kind().eval().to(cuda)
    ours = copy.deepcopy(theirs)
    replacement = sluice.replace(ours, cuda_graphs=True)
    for _ in range(3):
        x = torch.randn(2, 16, 20, device=cuda)
        inputs = x.clone(), x.clone()
        results = []
        for one, given in zip((theirs, ours), inputs, strict=True):
            torch.manual_seed(4)
            results.append(one(given))
        torch.testing.assert_close(results[1], results[0], rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(*inputs)
    assert len(captures(ours)) == 0
    assert reason in replacement.rows[-1].note


@torch.library.custom_op("sluice_tests::waiting", mutates_args=())
def waiting(x: torch.Tensor) -> torch.Tensor:
    """Waits for the GPU, which no capture allows, and which the op does not say."""
    return x * (2 if x.sum().item() > 0 else 3)


@waiting.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Waiting(Residual):
    def forward(self, x: torch.Tensor, flag: bool = False) -> Any:
        return self.second(waiting(super().forward(x)))


@pytest.mark.gpu
def test_after_a_capture_that_fails(cuda: str) -> None:
    theirs = Waiting().eval().to(cuda)
    ours = copy.deepcopy(theirs)
    replacement = sluice.replace(ours, cuda_graphs=True)
    for _ in range(4):
        check(ours, theirs, 20)
        torch.randn(3, device=cuda)  # torch's generator takes part in captures
    assert len(captures(ours)) == 0
    assert "a capture failed" in replacement.rows[-1].note


@pytest.mark.gpu
def test_a_capture_of_the_caller_runs_inside(cuda: str) -> None:
    theirs, ours, _ = pair(cuda)
    x = torch.randn(2, 16, 30, device=cuda)
    for _ in range(3):
        ours(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ours(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(result, theirs(x), rtol=2e-3, atol=2e-3)
