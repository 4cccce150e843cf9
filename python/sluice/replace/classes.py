"""The modules that are swapped, and their new classes: parameters, hooks and names of the module stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import parametrize

from ..nn.convolution import Conv1d, ConvTranspose1d
from ..nn.packing import PackedParameter
from ..nn.repeated import LastCall
from .depthwise import DepthwiseConv2d

# Torch's class, its replacement.
SWAPS: dict[type, type] = {
    torch.nn.Conv1d: Conv1d,
    torch.nn.ConvTranspose1d: ConvTranspose1d,
    torch.nn.Conv2d: DepthwiseConv2d,
}
OURS: tuple[type, ...] = tuple(SWAPS.values())
# Convolutions of transformers that pad only on the left, then call `super().forward`.
_CAUSAL_NAMES = frozenset(
    f"transformers.models.{name}"
    for name in (
        "gemma4.modeling_gemma4.Gemma4AudioCausalConv1d",
        "moonshine_streaming.modeling_moonshine_streaming.MoonshineStreamingCausalConv1d",
        "muse_spark.modeling_muse_spark.MuseSparkAudioCausalConv1d",
        "nemotron_asr_streaming.modeling_nemotron_asr_streaming.NemotronAsrStreamingEncoderCausalConv1d",
        "voxtral_realtime.modeling_voxtral_realtime.VoxtralRealtimeCausalConv1d",
    )
)
_CONVOLUTIONS = (torch.nn.Conv1d, torch.nn.ConvTranspose1d, torch.nn.Conv2d)
_QUANTISED = ("torch.ao.", "torch.nn.quantized.", "torch.nn.qat.", "torch.nn.intrinsic.", "torchao.")
_derived: dict[tuple[type, ...], type] = {}


class Derived:
    """A class made of a model's own class, which pickles by that one. It comes first among the bases.

    `__init_subclass__` of the model's class does not run: it is for the classes that users write.
    """

    bases_of_class: tuple[type, ...]

    def __init_subclass__(cls, **options: Any) -> None:
        pass

    def __reduce_ex__(self, protocol: Any) -> Any:
        made, arguments, *rest = super().__reduce_ex__(protocol)  # type: ignore[misc]
        if made.__name__ == "__newobj__" and arguments == (type(self),):
            return (restored, type(self).bases_of_class, *rest)
        return (made, arguments, *rest)


class Causal(Derived):
    """A causal convolution with its own padding, whose `super().forward` is sluice's."""


def derived(*bases: type) -> type:
    """The class of these bases, under the name of the second one.

    The first one's `forward_of`, where it has that, makes the forward. `type(module).forward` stays that of the model's
    class, which some forwards compare with themselves.
    """
    found = _derived.get(bases)
    if found is None:
        kind, own = bases[:2]
        names = {name: getattr(own, name) for name in ("__module__", "__qualname__", "__doc__")}
        meta: type = type(own)
        forward_of = getattr(kind, "forward_of", None)
        if forward_of is not None:
            names["forward"] = forward_of(own)
            meta = type(meta.__name__, (meta,), {"forward": property(lambda _: own.forward)})  # type: ignore[attr-defined]
        found = _derived[bases] = meta(  # type: ignore[call-overload]
            own.__name__, bases, {**names, "bases_of_class": bases}
        )
    return found


def restored(*bases: type) -> torch.nn.Module:
    """The module of a pickle, before its attributes are there."""
    made = derived(*bases)
    module: torch.nn.Module = object.__new__(made)
    return module


def own_class(module: torch.nn.Module) -> type:
    """The class without parametrizations."""
    kind = type(module)
    return kind.__bases__[0] if _is_parametrized(module) else kind


def lasting_class(module: torch.nn.Module) -> type:
    """The class that stays when a submodule is folded, or a convolution of ours loses its parametrization."""
    kind = type(module)
    if issubclass(kind, Derived):
        return kind.bases_of_class[1]
    if kind.__module__ == parametrize.__name__ and own_class(module) in OURS:
        return kind.__bases__[0]
    return kind


def _is_parametrized(module: torch.nn.Module) -> bool:
    kind = type(module)
    is_made = kind.__name__ == "Parametrized" + kind.__bases__[0].__name__ and "forward" not in kind.__dict__
    return is_made and parametrize.is_parametrized(module)


def rebased(module: torch.nn.Module, kind: type) -> type:
    """`kind`, with the properties of the module's parametrizations."""
    if not _is_parametrized(module):
        return kind
    made = type(module)
    attributes = {k: v for k, v in made.__dict__.items() if k not in ("__dict__", "__weakref__", "__doc__")}
    return type("Parametrized" + kind.__name__, (kind,), attributes)


def is_convolution(module: torch.nn.Module) -> bool:
    """Whether the module belongs into the table: a convolution of a class that is swapped, or of a related one."""
    if isinstance(module, torch.nn.Conv2d):
        own = own_class(module)
        return own is DepthwiseConv2d or (own is torch.nn.Conv2d and _depthwise_reason(module) == "")
    return isinstance(module, _CONVOLUTIONS) or (_is_quantised(own_class(module)) and "Conv" in type(module).__name__)


def target(module: torch.nn.Module) -> tuple[type | None, str]:
    """The class that the module gets, None where it stays, and why it stays."""
    own = own_class(module)
    if own in OURS or issubclass(own, Causal):
        return None, "is sluice's already"
    if "forward" in module.__dict__:
        return None, "its forward has been replaced"
    if own is torch.nn.Conv2d:
        reason = _depthwise_reason(module)
        return (None, reason) if reason else (rebased(module, DepthwiseConv2d), "")
    if own in SWAPS:
        return rebased(module, SWAPS[own]), ""
    name = f"{own.__module__}.{own.__qualname__}"
    if name in _CAUSAL_NAMES and not _is_parametrized(module):
        return derived(Causal, own, Conv1d), ""
    if _is_quantised(own):
        return None, "is quantised"
    return None, f"a subclass, {own.__name__}" if _has_torchs_forward(own) else "has a forward of its own"


def _has_torchs_forward(own: type) -> bool:
    forward = getattr(own, "forward", None)
    return any(forward is kind.forward for kind in _CONVOLUTIONS)


def _is_quantised(own: type) -> bool:
    return f"{own.__module__}.".startswith(_QUANTISED)


def _depthwise_reason(module: Any) -> str:
    if not module.groups == module.in_channels == module.out_channels:
        return "is not depthwise"
    if tuple(module.kernel_size) == (1, 1):
        return "has one tap"
    return ""


def has_other_hooks(module: torch.nn.Module) -> bool:
    """Whether a hook sees the module's input or result. Those of weight_norm and spectral_norm do not look at them."""
    if module._forward_hooks or "forward" in module.__dict__:
        return True
    return any(not is_norm(hook) for hook in module._forward_pre_hooks.values())


def is_norm(hook: Callable[..., Any]) -> bool:
    """Whether it is the hook of old-style weight_norm or spectral_norm."""
    return type(hook).__module__ in ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm")


def added_attributes(kind: type) -> dict[str, Any]:
    """The attributes that a module of that class has in addition to torch's."""
    if not issubclass(kind, (Conv1d, ConvTranspose1d)):
        return {}
    added: dict[str, Any] = {"pre": None, "post": None, "_last": LastCall()}
    return {**added, "_packed": PackedParameter()} if issubclass(kind, Conv1d) else added
