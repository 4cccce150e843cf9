"""Causal convolutions of weights with three dimensions: of whole rows, and chunk by chunk with states in a cache."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

import torch

from . import reference
from ._apply import given_options, needs_references, with_references
from ._apply import transform as apply_chain
from ._autocast import without_autocast
from ._autograd import check_out, innermost_transform
from ._call import is_negated, is_plain_call, run, with_its_memory
from ._chunk_fakes import LIMIT, reach_of
from ._chunk_fakes import PADDING_MODES as PADDING_MODES
from ._errors import checked, raise_as_python
from ._fake import check_states, holds
from ._modes import current_mode
from ._precision import add_precision
from ._sequences import of_cache
from .chain import Chain
from .stages import silu

_OP = "causal_conv1d"


@dataclasses.dataclass
class ChunkCall:
    """A causal convolution, transposed or not, of checked Python types.

    Attributes:
        op: the public op's name.
        x: (B, C, S).
        weight: with three dimensions.
        packed: its packed values, if there are any.
        bias: (C_out,).
        before: the chain `pre`.
        behind: the chain `post`.
        out: memory for the result.
    """

    op: str
    x: torch.Tensor
    weight: torch.Tensor
    packed: torch.Tensor | None
    bias: torch.Tensor | None
    before: Chain | None
    behind: Chain | None
    out: torch.Tensor | None

    def options(self) -> dict[str, Any]:
        """The raw ops' options for chains, precision and packed values."""
        options = given_options(self.op, self.x, "auto", None, pre=self.before, post=self.behind)
        if self.x.dtype == torch.float32:
            add_precision(options, self.x, is_plain_call(self.x))
        if self.packed is not None:
            options["packed"] = self.packed
        return options

    def of_cache(self, raw: str, cache: torch.Tensor, options: dict[str, Any], definition: Any) -> torch.Tensor:
        """The result of a chunk; `cache` is changed in place.

        Args:
            raw: the raw op's name.
            cache: states or overlaps.
            options: its numbers and its tensors of slots.
            definition: gives the result and the new cache where a chain has stages that only references compute.
        """
        self.check_mode()
        is_moved = is_negated(cache) or (self.out is not None and is_negated(self.out))
        by_definition = needs_references(self.x, self.before, self.behind)
        if is_moved or by_definition:
            self._check(raw, cache, options)
        if by_definition:
            chains = {"pre": self.before, "post": self.behind}
            for chain in chains.values():
                check_references(self.op, chain)
            with without_autocast(self.x.device.type):  # which has cast x already
                result, states = definition(self.x, self.weight, self.bias, **options, **chains)
            cache.copy_(states)
            return result if self.out is None else self.out.copy_(result)
        states = cache.resolve_neg() if is_negated(cache) else cache
        result = run(
            self.op, (self.x, states, self.weight, self.bias), {**options, **self.options()}, self.out, raw=raw
        )
        if states is not cache:
            cache.copy_(states)
        return result

    def check_mode(self) -> None:
        """Raises if the call is only planned or prepared."""
        if current_mode.action:
            raise ValueError(f"{current_mode.action}: {self.op} must have no cache, because such calls have no choice "
                             "of schedule and no linked form, got one")  # fmt: skip

    def _check(self, raw: str, cache: torch.Tensor, options: dict[str, Any]) -> None:
        """Raises what the raw op refuses, before anything is computed or written."""
        if torch.compiler.is_compiling():
            return
        if self.out is not None:
            check_out(self.op, "out", self.out)
            options = {**options, "out": with_its_memory(self.out)}
        arguments = self.x, with_its_memory(cache), self.weight, self.bias
        run(self.op, arguments, {**options, **self.options()}, raw="_check_" + raw)

    def of_rows(
        self, raw: str, numbers: tuple[int, ...], options: dict[str, Any], schedule: str, depth: int | None
    ) -> torch.Tensor:
        """The result without a past, by another op.

        Args:
            raw: "conv1d" or "conv_transpose1d".
            numbers: its positional arguments after the bias.
            options: its other numbers.
            schedule: as that op has it.
            depth: as that op has it.
        """
        if needs_references(self.x, self.before, self.behind):
            compute = functools.partial(self._compute, raw, numbers, options, schedule, depth)
            return with_references(
                self.op, compute, self.x, pre=self.before, post=self.behind, out=self.out, dtype=self.x.dtype
            )
        chains = {"pre": self.before, "post": self.behind}
        dtype = self.x.dtype if self.behind else None  # whatever it casts to
        return self._compute(raw, numbers, options, schedule, depth, self.x, out=self.out, dtype=dtype, **chains)

    def _compute(
        self,
        raw: str,
        numbers: tuple[int, ...],
        options: dict[str, Any],
        schedule: str,
        depth: int | None,
        x: torch.Tensor,
        *,
        pre: Any,
        post: Any,
        out: torch.Tensor | None,
        dtype: torch.dtype | None,
    ) -> torch.Tensor:
        options = {**options, **given_options(self.op, x, schedule, depth, dtype, pre=pre, post=post)}
        if x.dtype == torch.float32:
            add_precision(options, x, is_plain_call(x))
        if self.packed is not None:
            options["packed"] = self.packed
        try:
            return run(self.op, (x, self.weight, self.bias, *numbers), options, out, raw=raw)
        except RuntimeError as error:
            text = str(error)
            if not text.startswith(f"{raw}: "):
                raise
            rule = re.sub("^input (?=must)|(?<=overlap )input(?=,)", lambda found: found[0].replace("input", "x"),
                          text.removeprefix(f"{raw}: "))  # fmt: skip
            raise_as_python(self.op, RuntimeError(f"{self.op}: {rule}"), x.device)


def check_references(op: str, chain: Chain | None) -> None:
    """Raises if a stage of the chain has no definition that the CPU can compute."""
    while chain:
        _, stage, chain = chain.partition()
        if stage is not None and stage[0].reference is None:
            rule = "a cpp stage must be given a reference= to run on the CPU"
            raise ValueError(f"{op}: {rule}, got {stage[0].name!r} without one")


def refuse_nested(op: str, *tensors: torch.Tensor | None) -> None:
    """Raises for a nested tensor, whose sizes cannot be asked; the ops refuse other tensors without strides."""
    for tensor in tensors:
        if tensor is not None and tensor.is_nested:
            raise TypeError(f"{op}: tensors must be strided, on the CPU or a CUDA device, got a nested tensor")


def check_positions(op: str, x: torch.Tensor, stride: int) -> None:
    """Raises unless x is (B, C, S) with a multiple of the stride; the ops check the other numbers."""
    if x.dim() != 3:
        raise ValueError(f"{op}: x must have shape (batch, channels, length), got {tuple(x.shape)}")
    if stride > 0 and x.shape[2] % stride != 0:
        raise ValueError(f"{op}: x must have a multiple of stride = {stride} positions, got {x.shape[2]}")


def refuse_sequences(options: dict[str, Any]) -> None:
    """Raises if there are sequences within rows."""
    for name in ("seq_idx", "cu_seqlens"):
        if name in options:
            raise ValueError(f"{_OP}: {name} must be None with a weight of three dimensions, got one")


def with_activation(activation: str | None, behind: Chain | None) -> Chain | None:
    """`behind` after the activation."""
    if activation is None:
        return behind
    return silu() if behind is None else silu() | behind


@dataclasses.dataclass
class Dense(ChunkCall):
    """`causal_conv1d` of a weight (C_out, C / groups, K)."""

    stride: int
    dilation: int
    groups: int
    padding_mode: str

    @property
    def history(self) -> int:
        """Positions before the first that results see; 0 for numbers that the ops refuse."""
        return max(0, reach_of(self.weight, self.dilation) - max(1, self.stride))

    def result(self, schedule: str, depth: int | None) -> torch.Tensor:
        """The result of rows without a past."""
        call, history = self, self.history
        has_values = self.padding_mode != "zeros" and not holds(self.x.shape[1] * self.x.shape[2] == 0)
        if has_values and 0 < history < LIMIT:
            x = self.x if self.before is None else apply_chain(self.x, self.before, dtype=self.x.dtype)
            past = reference.columns_before(x, history, self.padding_mode)
            call, history = dataclasses.replace(self, x=torch.cat([past, x], dim=-1), before=None), 0
        numbers = self.stride, history, self.dilation, self.groups
        return call.of_rows("conv1d", numbers, {"padding_right": 0}, schedule, depth)

    def with_cache(self, cache: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        """The result of a chunk; `options` have the slots."""
        channels, dtype = self.x.shape[1], self.x.dtype
        is_depthwise = self.groups == channels and tuple(self.weight.shape[:2]) == (channels, 1)
        is_alike = self.weight.dtype == dtype and (self.bias is None or self.bias.dtype == dtype)
        has_zeros = self.before is None and self.padding_mode == "zeros"
        if is_depthwise and is_alike and has_zeros and self.stride == 1 and self.history < LIMIT:
            self.check_mode()
            if self.dilation != 1:
                options = {**options, "dilation": self.dilation}
            others = self.weight[:, 0], self.bias, None
            return of_cache(self.x, cache, others, options, None, self.behind, self.out)
        numbers = {name: getattr(self, name) for name in ("stride", "dilation", "groups", "padding_mode")}
        definition = functools.partial(reference.causal_conv1d, state_cache=cache)
        return self.of_cache("causal_conv1d_chunk", cache, {**options, **numbers}, definition)

    def run(
        self,
        options: dict[str, Any],
        initial: torch.Tensor | None,
        cache: torch.Tensor | None,
        final: tuple[bool, torch.Tensor | None],
        schedule: str,
        depth: int | None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """`causal_conv1d` of these arguments: `final` are whether final states are wanted, and memory for them."""
        for name, written in (("out", self.out), ("final_states_out", final[1])):
            if written is not None:
                check_out(_OP, name, written)
        refuse_nested(_OP, self.x, initial, final[1])
        check_positions(_OP, self.x, self.stride)
        if self.padding_mode not in PADDING_MODES:
            known = "must be zeros, replicate or reflect"
            raise ValueError(f"{_OP}: padding_mode {known}, got {self.padding_mode!r}")
        has_states = initial is not None or final[0]
        if cache is None:
            for name in options:
                raise ValueError(f"{_OP}: {name} must be given with a state_cache, got none")
        elif has_states:
            rule = "initial_states and final states must be omitted when state_cache is given, which holds both"
            raise ValueError(f"{_OP}: {rule}")
        if cache is None and not has_states:
            return self.result(schedule, depth)
        if schedule != "auto" or depth is not None:
            raise ValueError(f"{_OP}: schedule must be auto and depth None with states, got {schedule!r} and {depth}")
        if cache is not None:
            return self.with_cache(cache, options)
        result, states = self.with_states(initial, final[1])
        return (result, states) if final[0] else result

    def with_states(
        self, initial: torch.Tensor | None, states_out: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The result and the final states."""
        x, history = self.x, self.history
        if history >= LIMIT:  # which conv1d refuses
            return self.result("auto", None), x
        wanted = (*x.shape[:2], history)
        for name, given in (("initial_states", initial), ("final_states_out", states_out)):
            if given is not None and tuple(given.shape) != wanted:
                raise ValueError(f"{_OP}: {name} must have shape (batch, channels, dilation * (K - 1) + 1 - stride) = "
                                 f"{wanted}, got {tuple(given.shape)}")  # fmt: skip
            if not torch.compiler.is_compiling():
                checked(_OP, x, check_states, _OP, name, given, x, x.shape[0], history)
        if states_out is not None:
            self._check_states(initial, states_out)
        states, options = x.new_zeros(wanted), {}
        if innermost_transform() is not None:  # a written tensor must be mapped if any tensor is
            for one in (self.weight, self.bias, initial):
                states = states if one is None else states + one.new_zeros((), dtype=x.dtype)
        if initial is not None:
            states.copy_(initial)
        else:
            options["has_initial_state"] = x.new_zeros(x.shape[0], dtype=torch.bool)
        result = self.with_cache(states, options)
        return result, states if states_out is None else states_out.copy_(states)

    def _check_states(self, initial: torch.Tensor | None, states_out: torch.Tensor) -> None:
        """Raises if the final states cannot be written, before the result is; mapped tensors have no addresses."""
        if torch.compiler.is_compiling() or innermost_transform() is not None:
            return
        if states_out.is_inference() and not torch.is_inference_mode_enabled():
            rule = "must not be an inference tensor outside torch.inference_mode(), got one"
            raise ValueError(f"{_OP}: final_states_out {rule}")
        out = None if self.out is None else with_its_memory(self.out)
        arguments = self.x, self.history, initial, with_its_memory(states_out), out
        run(_OP, arguments, {}, raw="_check_causal_conv1d_final_states_out")
