"""Convolutions of transformers whose padding fills whole strides: here integers of a shape.

Theirs read it from the device, or divide lengths as floating-point numbers, which a tracer of any length simplifies for
seconds.
"""

from __future__ import annotations

from typing import Any

import torch

from .classes import Derived

NAMES = frozenset(
    f"transformers.models.{name}"
    for name in (
        "encodec.modeling_encodec.EncodecConv1d",
        "mimi.modeling_mimi.MimiConv1d",
        "pocket_tts_audio_tokenizer.modeling_pocket_tts_audio_tokenizer.PocketTTSAudioTokenizerConv1d",
        "qwen3_omni_moe.modeling_qwen3_omni_moe.Qwen3OmniMoeCausalConvNet",
    )
)
_LENGTHS = (1, 2, 3, 7, 64)  # at which a module's own padding is compared


class Padded(Derived):
    """A convolution whose padding numbers are Python's."""

    def _get_extra_padding_for_conv1d(self: Any, hidden_states: torch.Tensor) -> Any:
        return _numbers(self.conv, hidden_states.shape[-1])[1]


class PaddedInside(Padded):
    """A padded convolution that pads by a function of its own, which gets tensors of numbers."""

    def _pad1d(self: Any, hidden_states: torch.Tensor, paddings: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        total, extra = _numbers(self.conv, hidden_states.shape[-1])
        sides = (total, extra) if self.causal else (total - total // 2, total // 2 + extra)
        padded: torch.Tensor = type(self)._sluice_bases[1]._pad1d(hidden_states, sides, *args, **kwargs)  # type: ignore
        return padded


def padded_class(module: Any) -> type[Padded] | None:
    """The class that a module's own class is derived with; None if it is not in `NAMES`, or pads by other numbers."""
    kind = type(module)
    if issubclass(kind, Derived):
        return None
    if f"{kind.__module__}.{kind.__qualname__}" not in NAMES or not isinstance(module.conv, torch.nn.Conv1d):
        return None
    own, is_inside = kind._get_extra_padding_for_conv1d, hasattr(kind, "_pad1d")
    try:
        given = [int(own(module, torch.empty(1, length, device="meta"))) for length in _LENGTHS]
        total = int(module.padding_total if is_inside else module.padding)
    except (AttributeError, TypeError, RuntimeError):
        return None
    if [(total, extra) for extra in given] != [_numbers(module.conv, length) for length in _LENGTHS]:
        return None
    return PaddedInside if is_inside else Padded


def _numbers(conv: torch.nn.Conv1d, length: int) -> tuple[int, int]:
    """Positions that the convolution reads beside a stride, and positions that a length lacks to whole strides."""
    reach, stride = (conv.kernel_size[0] - 1) * conv.dilation[0] + 1, conv.stride[0]
    total = reach - stride
    strides = -((reach - total - length) // stride)
    return total, strides * stride + reach - total - length
