"""Padded convolutions of transformers after sluice.replace: the padding of their own code, from shapes alone."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn

import sluice

pytestmark = pytest.mark.no_gpu

transformers = pytest.importorskip("transformers")


def made(name: str, *args: Any, **kwargs: Any) -> nn.Module:
    path, _, kind = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(f"transformers.models.{path}"), kind)
    except (ImportError, AttributeError) as error:
        pytest.skip(str(error))
    return found(*args, **kwargs).eval()  # type: ignore[no-any-return]


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("kernel", [5, 7])
def test_qwens_padding_is_integers(stride: int, kernel: int) -> None:
    torch.manual_seed(0)
    net = made("qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeCausalConvNet", 4, 4, kernel, 2, stride)
    xs = [torch.randn(2, 4, length) for length in range(1, 24)]
    with torch.no_grad():
        numbers, results = [net._get_extra_padding_for_conv1d(x) for x in xs], [net(x) for x in xs]  # type: ignore
        own = type(net)
        replacement = sluice.replace(net)
        assert type(net) is not own
        assert isinstance(net, own)
        assert [net._get_extra_padding_for_conv1d(x) for x in xs] == numbers  # type: ignore[operator]
        for x, y in zip(xs, results, strict=True):
            torch.testing.assert_close(net(x), y)
        replacement.undo()
        assert type(net) is own


def test_a_module_with_other_numbers_keeps_its_class() -> None:
    net = made("qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeCausalConvNet", 4, 4, 7)
    net.padding = 3
    own = type(net)
    sluice.replace(net)
    assert type(net) is own
