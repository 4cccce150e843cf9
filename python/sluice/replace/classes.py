"""The modules that are swapped, and their new classes: parameters, hooks and names of the module stay."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from ..nn.chained import is_patched
from ..nn.convolution import Conv1d, ConvTranspose1d
from ..nn.state import NAME
from ..pack import on_tensor_cores
from .depthwise import DepthwiseConv2d

# Torch's class, its replacement.
SWAPS: dict[type, type] = {
    torch.nn.Conv1d: Conv1d,
    torch.nn.ConvTranspose1d: ConvTranspose1d,
    torch.nn.Conv2d: DepthwiseConv2d,
}
OURS: tuple[type, ...] = tuple(SWAPS.values())
# torch's own code of a call, by its class.
_CODE: dict[type, dict[str, Any]] = {
    kind: {name: getattr(kind, name) for name in ("forward", "_conv_forward", "_output_padding") if hasattr(kind, name)}
    for kind in SWAPS
}
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
    """The first base of a class that is made of a model's own class, and that pickles by its bases.

    `__init_subclass__` of the model's class does not run: it is for the classes that users write.
    """

    if TYPE_CHECKING:  # annotations would hide the model class's own from torch.jit.script
        _sluice_bases: tuple[type, ...]

    def __init_subclass__(cls, **options: Any) -> None:
        pass

    def __reduce_ex__(self, protocol: Any) -> Any:
        made, arguments, *rest = super().__reduce_ex__(protocol)  # type: ignore[misc]
        if made.__name__ == "__newobj__" and arguments == (type(self),):
            return (restored, type(self)._sluice_bases, *rest)
        return (made, arguments, *rest)


class Causal(Derived):
    """A causal convolution with its own padding, whose `super().forward` is sluice's."""


def derived(*bases: type) -> type:
    """The class of these bases, under the name of the second base."""
    found = _derived.get(bases)
    if found is None:
        own = bases[1]
        names = {name: getattr(own, name) for name in ("__module__", "__qualname__", "__doc__")}
        found = _derived[bases] = type(own)(  # type: ignore[call-overload]
            own.__name__, bases, {**names, "_sluice_bases": bases}
        )
    return found


def bases_of(kind: type) -> tuple[type, ...]:
    """The bases that `of_bases` makes the class of; unlike a class of ours they can be pickled."""
    return kind._sluice_bases if issubclass(kind, Derived) else (kind,)


def of_bases(*bases: type) -> type:
    """The class of `bases_of`."""
    return derived(*bases) if issubclass(bases[0], Derived) else bases[0]


def exchanged(kind: type, old: type, new: type) -> type:
    """`kind` with `new` in the place of `old`, which is the class itself or an ancestor.

    Parametrizations and FSDP make a class of a module's class, which is made again with another base.

    Raises:
        TypeError: a class in between is one that somebody wrote, or cannot be made again.
    """
    if kind is old:
        return new
    written = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
    if written or any("__class__" in _free_names(value) for value in vars(kind).values()):  # super()'s cell
        raise TypeError(f"it keeps its class {kind.__name__}, which others made of {old.__name__}")
    bases = tuple(exchanged(base, old, new) if issubclass(base, old) else base for base in kind.__bases__)
    name = kind.__name__
    if name.endswith(kind.__bases__[-1].__name__):  # Parametrized<base>
        name = name.removesuffix(kind.__bases__[-1].__name__) + bases[-1].__name__
    return type(name, bases, attributes_of(kind))


def attributes_of(kind: type) -> dict[str, Any]:
    """The attributes that a class of other bases can have."""
    return {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__", "__doc__")}


def _free_names(value: Any) -> tuple[str, ...]:
    function = getattr(value, "__func__", getattr(value, "fget", value))
    return getattr(getattr(function, "__code__", None), "co_freevars", ())


def restored(*bases: type) -> torch.nn.Module:
    """The module of a pickle, before its attributes are there."""
    made = derived(*bases)
    module: torch.nn.Module = object.__new__(made)
    return module


def own_class(module: torch.nn.Module) -> type:
    """The class without parametrizations."""
    kind = type(module)
    return kind.__bases__[0] if _is_parametrized(module) else kind


def _is_parametrized(module: torch.nn.Module) -> bool:
    kind = type(module)
    is_made = kind.__name__ == "Parametrized" + kind.__bases__[0].__name__ and "forward" not in kind.__dict__
    return is_made and parametrize.is_parametrized(module)


def is_convolution(module: torch.nn.Module) -> bool:
    """Whether the module belongs into the table: a convolution of a class that is swapped, or of a related one."""
    if isinstance(module, torch.nn.Conv2d):
        own = own_class(module)
        return own is DepthwiseConv2d or (own is torch.nn.Conv2d and _depthwise_reason(module) == "")
    return isinstance(module, _CONVOLUTIONS) or (_is_quantised(own_class(module)) and "Conv" in type(module).__name__)


def target(module: torch.nn.Module) -> tuple[type | None, str]:
    """The class that the module gets in the place of its own, None where it stays, and why it stays."""
    own = own_class(module)
    if own in OURS or issubclass(own, Causal):
        return None, "is sluice's already"
    for name in _CODE.get(own, ("forward", "_conv_forward")):
        if name in module.__dict__ or (own in SWAPS and is_patched(module, name, _CODE[own][name])):
            return None, f"its {name} has been replaced"
    if NAME in module.__dict__:
        return None, f"has an attribute {NAME}"
    if own is torch.nn.Conv2d and (reason := _depthwise_reason(module)):
        return None, reason
    is_causal = f"{own.__module__}.{own.__qualname__}" in _CAUSAL_NAMES and not _is_parametrized(module)
    if (own in SWAPS or is_causal) and _is_torchs(module):
        return None, "torch's own kernel computes it"
    if own in SWAPS or is_causal:
        return SWAPS[own] if own in SWAPS else derived(Causal, own, Conv1d), ""
    if _is_quantised(own):
        return None, "is quantised"
    return None, f"a subclass, {own.__name__}" if _has_torchs_forward(own) else "has a forward of its own"


def _is_torchs(module: Any) -> bool:
    """Whether sluice would compute the module's convolution by torch's kernel, on its device and in its dtype."""
    first = next(module.parameters(), None)
    if first is None or isinstance(module, torch.nn.Conv2d):
        return False
    if module.groups == module.in_channels and (module.groups > 1 or module.out_channels == 1):
        return False
    device = first.device
    return device.type == "cpu" or (device.type == "cuda" and not on_tensor_cores(first.dtype, device))


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
