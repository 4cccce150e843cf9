"""A chain of stages as an object and as the text that the ops take; sluice.stages has the functions that make one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Union

import torch

from . import _apply, _chain_text
from ._fake import FLOATING, dtype_name
from ._library import stage_signatures


class PerChannel(NamedTuple):
    """A parameter with a value for each channel: dimension 1 of the chain's input, as torch's modules count.

    Attributes:
        values: C values, or a single value for all channels, of any shape.
    """

    values: torch.Tensor

    def for_dim(self, dim: int) -> torch.Tensor:
        """The operand for an input of `dim` dimensions; several values do not broadcast to one without channels."""
        if self.values.numel() == 1:
            return self.values.reshape(-1)
        return self.values.reshape(-1, *[1] * (dim - 2 if dim > 1 else 1))


Parameter = Union[float, int, torch.Tensor, PerChannel]

_STAGE_NAMES = frozenset(stage_signatures())
_CASTS = frozenset(map(dtype_name, FLOATING))


class CppSource(NamedTuple):
    """The arguments of `cpp`, without the parameters' values."""

    text: str
    name: str
    parameters: tuple[str, ...]
    reference: Callable[..., torch.Tensor] | None


# A stage's name and its values, in the order of its text. A cpp stage's first value is its source.
Stage = tuple[str, tuple[Union[Parameter, str, CppSource], ...]]


class Chain:
    """An immutable sequence of stages. `a | b` is a, then b; `chain(x)` is `sluice.transform(x, chain)`.

    Chains are equal if they have the same text and their tensors the same bits, as in a copy or a pickle. A chain holds
    the tensors that it was given and follows no module: if they are a module's parameters or
    buffers, compose it in `forward`, as `sluice.stages` shows.
    """

    __slots__ = ("_has_channels", "_has_cpp", "_operands", "_stages", "_text")

    _has_channels: bool
    _has_cpp: bool
    _stages: tuple[Stage, ...]
    _text: str
    _operands: tuple[torch.Tensor, ...]

    def __init__(self, stages: tuple[Stage, ...] = ()) -> None:
        self._stages = stages
        self._has_channels = any(isinstance(value, PerChannel) for _, values in stages for value in values)
        [self._text], operands = encode_together([_for_dim(stages, 3) if self._has_channels else stages])
        self._operands = tuple(operands)
        self._has_cpp = any(name == "cpp" for name, _ in stages)

    @property
    def text(self) -> str:
        """The chain as the raw ops take it: `scale(1.5)|add($0,1.0)|silu()`."""
        return self._text

    @property
    def operands(self) -> tuple[torch.Tensor, ...]:
        """The tensors that the text calls `$0`, `$1`, ...: the caller's own, never copies.

        Values for each channel have the shape that broadcasts to (B, C, L); `for_dim` makes that of another input.
        """
        return self._operands

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages as (name, values); a `cpp` stage's first value is its source."""
        return self._stages

    @property
    def has_channels(self) -> bool:
        """Whether a stage has values for each channel."""
        return self._has_channels

    @property
    def has_cpp(self) -> bool:
        """Whether a stage is a `cpp` stage."""
        return self._has_cpp

    def result_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the chain's result for an input of `dtype`: a last `cast` decides it."""
        name, values = self._stages[-1] if self._stages else (None, ())
        return getattr(torch, str(values[0])) if name == "cast" else dtype  # type: ignore[no-any-return]

    def partition(self) -> tuple[Chain, tuple[Any, ...] | None, Chain]:
        """The stages before the first `cpp` stage, its values, the stages after it; (self, None, empty) if none."""
        at = next((i for i, (name, _) in enumerate(self._stages) if name == "cpp"), None)
        if at is None:
            return self, None, Chain()
        return Chain(self._stages[:at]), self._stages[at][1], Chain(self._stages[at + 1 :])

    def for_dim(self, dim: int) -> Chain:
        """The chain for an input of `dim` dimensions, whose dimension 1 is that of the channels."""
        return Chain(_for_dim(self._stages, dim)) if self._has_channels else self

    def with_values(self, changed: Callable[[Any], Any]) -> Chain:
        """The same stages with other values: `changed` of each."""
        return Chain(_with_values(self._stages, changed))

    def __or__(self, other: object) -> Chain:
        if not isinstance(other, Chain):
            return NotImplemented
        return Chain(self._stages + other._stages)

    def __call__(self, x: torch.Tensor, **options: Any) -> torch.Tensor:
        """`sluice.transform(x, self, **options)`."""
        return _apply.transform(x, self, **options)

    def __len__(self) -> int:
        # getattr as in __hash__: torch 2.11's dynamo tests the truth of an object before its __init__ has run.
        return len(getattr(self, "_stages", ()))

    def __iter__(self) -> Iterator[Chain]:
        return (Chain((stage,)) for stage in self._stages)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Chain):
            return NotImplemented
        if self._text != other._text or len(self._operands) != len(other._operands):
            return False
        if self._has_channels != other._has_channels:
            return False
        return all(map(_has_same_bits, self._operands, other._operands))

    def __hash__(self) -> int:
        # dynamo calls it before __init__ has run, if it compiles __init__ by itself.
        return hash(getattr(self, "_text", ""))

    def __reduce__(self) -> tuple[Callable[..., Chain], tuple[Any, ...]]:
        return restored, (self._stages,)

    def __repr__(self) -> str:
        def show(value: Parameter | str) -> str:
            if isinstance(value, PerChannel):
                return f"PerChannel({value.values.numel()})"
            return f"Tensor{tuple(value.shape)}" if isinstance(value, torch.Tensor) else str(value)

        def arguments(values: tuple[Any, ...]) -> Iterator[str]:
            if not values or not isinstance(values[0], CppSource):
                return map(show, values)
            source = values[0]
            named = (f"{name}={show(value)}" for name, value in zip(source.parameters, values[1:], strict=True))
            return iter([repr(source.text), *named])

        texts = (f"{name}({', '.join(arguments(values))})" for name, values in self._stages)
        return " | ".join(texts) if self._stages else "Chain()"


def given_chain(op: str, argument: str, value: Chain | str, dim: int) -> Chain:
    """The chain that an op was given as a chain or as text, for an input of `dim` dimensions.

    Raises:
        TypeError: it is neither.
        ValueError: the text is no chain, or names tensors, which only a chain has.
    """
    return as_chain(op, argument, value).for_dim(dim)


def as_chain(op: str, argument: str, value: Chain | str) -> Chain:
    """The same for any input."""
    if isinstance(value, Chain):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{op}: {argument} must be a chain or the text of one, got {type(value).__name__}")
    if "$" in value:
        raise ValueError(f"{op}: {argument} must be composed of sluice.stages when it has tensors, got {value!r}")
    return Chain(tuple([_stage(*parts) for parts in _chain_text.parsed(op, argument, value)]))


def _stage(name: str, numbers: tuple[Any, ...], source: tuple[Any, ...] | None) -> Stage:
    """A stage of a text; a cpp stage has its text, its name and its parameters' names as `source`."""
    if source is None:
        return name, numbers
    text, own, parameters = source
    return name, (CppSource(text, own, parameters, None), *numbers)


def restored(stages: tuple[Stage, ...]) -> Chain:
    """The chain of a pickle. torch.load trusts this function, so it refuses text that is code.

    Raises:
        ValueError: a stage is not from sluice.stages.
    """
    for name, values in stages:
        is_cpp = name == "cpp" and isinstance(values[0], CppSource)
        known = is_cpp or name in _STAGE_NAMES or (name == "cast" and values[0] in _CASTS)
        if not known or any(isinstance(value, str) for value in values if name != "cast"):
            raise ValueError(f"Chain: a pickle must hold stages of sluice.stages, got {name!r}")
    return Chain(stages)


torch.serialization.add_safe_globals([restored, PerChannel])


def _has_same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a is b:
        return True
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device) or a.device.type == "meta":
        return False
    return torch.equal(_bits(a), _bits(b))  # bits, because a NaN differs from itself


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.detach().resolve_neg().reshape(-1).contiguous().view(torch.uint8)


def _for_dim(stages: tuple[Stage, ...], dim: int) -> tuple[Stage, ...]:
    made: list[tuple[torch.Tensor, torch.Tensor]] = []  # a tensor that has two places stays a single operand

    def operand(value: Any) -> Any:
        if not isinstance(value, PerChannel):
            return value
        for values, shaped in made:
            if values is value.values:
                return shaped
        made.append((value.values, value.for_dim(dim)))
        return made[-1][1]

    return _with_values(stages, operand)


def _with_values(stages: tuple[Stage, ...], changed: Callable[[Any], Any]) -> tuple[Stage, ...]:
    return tuple([(name, tuple([changed(value) for value in values])) for name, values in stages])


def _number_text(value: float) -> str:
    # At hex() torch.compile turns a symbolic number into a constant; it does not trace repr().
    return repr(float.fromhex(float(value).hex()))


def count_operands(chains: list[Chain]) -> int:
    """The number of tensors of the chains together, as `encode_together` counts them."""
    return len(encode_together([chain.stages for chain in chains])[1])


def encode_together(chains: list[tuple[Stage, ...]]) -> tuple[list[str], list[torch.Tensor]]:
    """The texts of several chains, and their common list of tensors."""
    operands: list[torch.Tensor] = []
    return [_encode(stages, operands) for stages in chains], operands


def _encode(stages: tuple[Stage, ...], operands: list[torch.Tensor]) -> str:
    texts: list[str] = []
    for name, values in stages:
        arguments: list[str] = []
        names: tuple[str, ...] = ()
        for value in values:
            label = names[len(arguments) - 2] + "=" if names else ""
            if isinstance(value, CppSource):
                arguments = [_quoted(value.text), value.name]
                names = value.parameters
            elif isinstance(value, torch.Tensor):
                index = next((i for i, known in enumerate(operands) if known is value), len(operands))
                if index == len(operands):
                    operands.append(value)
                arguments.append(f"{label}${index}")
            else:
                assert not isinstance(value, PerChannel)  # `_for_dim` has made it a tensor
                arguments.append(label + (value if isinstance(value, str) else _number_text(value)))
        texts.append(f"{name}({','.join(arguments)})" if name else arguments[0])
    return "|".join(texts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
