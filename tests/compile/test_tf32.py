"""Graphs of TF32 convolutions: compiled again when torch's setting changes, and not otherwise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

import sluice
from sluice.compile import backend, folded_graph, guards, post_grad
from tf32 import STEPS, Setting, input_and_weight

pytestmark = pytest.mark.no_gpu
OPS = ("conv1d", "conv_transpose1d")


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Setting:
    return Setting(monkeypatch)


@pytest.mark.parametrize("op", OPS)
def test_a_changed_setting_compiles_again(op: str, setting: Setting) -> None:
    torch._dynamo.reset()
    graphs: list[list[dict[str, Any]]] = []

    def noted(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append([node.kwargs for node in graph.graph.nodes if str(node.target).startswith("sluice.")])
        return graph.forward

    compiled, (x, w) = torch.compile(getattr(sluice, op), backend=noted, fullgraph=True), input_and_weight()
    for precision, count in STEPS:
        setting.put(precision)
        with torch.no_grad(), x.fake_mode:
            compiled(x, w)
        assert len(graphs) == count
    assert graphs == [[{"precision": "tf32"}], [{}]]


def test_a_changed_setting_compiles_again_what_packs(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sluice.pack.__globals__, "has_kernels", lambda device: True)
    torch._dynamo.reset()
    graphs: list[list[dict[str, Any]]] = []

    def noted(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append([node.kwargs for node in graph.graph.nodes if str(node.target).startswith("sluice.")])
        return graph.forward

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, sluice.pack(w))

    compiled, (x, w) = torch.compile(program, backend=noted, fullgraph=True), input_and_weight()
    for precision, count in STEPS:
        setting.put(precision)
        with torch.no_grad(), x.fake_mode:
            compiled(x, w)
        assert len(graphs) == count
    for found, options in zip(graphs, ({"precision": "tf32"}, {}), strict=True):
        pack, convolution = found
        assert pack == options
        assert convolution == {**options, "packed": convolution["packed"]}


def test_a_setting_of_other_graphs_is_not_guarded(setting: Setting) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def noted(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    for x, w in (input_and_weight(torch.float16), input_and_weight(device="cpu")):
        torch._dynamo.reset()
        graphs.clear()
        compiled = torch.compile(sluice.conv1d, backend=noted, fullgraph=True)
        for precision, _ in STEPS:
            setting.put(precision)
            with torch.no_grad(), x.fake_mode:
                compiled(x, w)
        assert len(graphs) == 1


def test_an_exported_call_keeps_the_setting(setting: Setting) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return sluice.conv1d(x, w)

    x, w = input_and_weight()
    for strict, precision in itertools.product((False, True), ("tf32", "ieee")):
        setting.put(precision)
        with torch.no_grad(), x.fake_mode:
            program = torch.export.export(Model(), (x, w), strict=strict)
        assert ("tf32" in program.graph_module.code) == (precision == "tf32")


def compiles(function: Callable[..., Any], x: FakeTensor, setting: Setting) -> list[int]:
    """How often a backend's function has run after each of the steps."""
    torch._dynamo.reset()
    counts, made = [], 0

    def noted(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        nonlocal made
        made += 1
        result: Callable[..., Any] = function(graph, inputs) or graph.forward
        return result

    compiled = torch.compile(lambda x: x * 2, backend=noted, fullgraph=True)
    for precision, _ in STEPS:
        setting.put(precision)
        with torch.no_grad(), x.fake_mode:
            compiled(x)
        counts.append(made)
    return counts


AGAIN, ONCE = [count for _, count in STEPS], [1] * len(STEPS)


def test_a_backend_guards_the_setting(setting: Setting) -> None:
    assert compiles(lambda graph, inputs: None, input_and_weight()[0], setting) == ONCE
    assert compiles(lambda graph, inputs: guards.guard_tf32(graph), input_and_weight()[0], setting) == AGAIN
    for x in (input_and_weight(torch.float16)[0], input_and_weight(device="cpu")[0]):
        assert compiles(lambda graph, inputs: guards.guard_tf32(graph), x, setting) == ONCE


def test_torch_compile_sees_a_changed_setting(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []

    def compile_fx(graph: torch.fx.GraphModule, inputs: Any, config_patches: Any, **_: Any) -> Callable[..., Any]:
        keys.append(config_patches["post_grad_custom_pre_pass"].uuid())
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    assert compiles(backend, input_and_weight()[0], setting) == AGAIN
    assert len(set(keys)) == 2  # Inductor's caches must not exchange the graphs


def test_a_replaced_model_sees_a_changed_setting(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folded_graph, "captured", lambda graph: "the test runs it as it is")
    x = input_and_weight()[0]
    assert compiles(lambda graph, inputs: folded_graph.folded(graph, inputs, None), x, setting) == AGAIN


def test_a_graph_without_a_guard_has_a_key_without_the_setting(setting: Setting) -> None:
    def key(has_guard: bool, precision: str) -> str:
        setting.put(precision)
        return str(post_grad.FoldConvolutions(has_guard=has_guard).uuid())

    assert key(False, "tf32") == key(False, "ieee") == key(True, "ieee")
    assert key(True, "tf32") != key(True, "ieee")
