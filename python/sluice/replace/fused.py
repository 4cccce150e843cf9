"""One convolution of a folded forward with the chains around it, decided at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from .._fake import FLOATING
from ..chain import Chain
from ..nn.chained import PLAIN, is_plain
from ..nn.repeated import Call, tensors_of
from ..nn.state import NAME
from .stage import TracedStage

WRAPPER = "_sluice_conv_wrapper"  # the attribute that holds a module's (conv_wrapper.py)


class Fused:
    """`post(convolution(pre(x)))` as forward has it; immutable.

    If an operand does not broadcast to the values, or torch would give another dtype, forward's own functions run
    one by one. It is never compiled: a compiler sees the module's own forward.

    Args:
        pre: stages before the convolution.
        post: stages after it.
    """

    def __init__(self, pre: Sequence[TracedStage], post: Sequence[TracedStage]) -> None:
        self.__name__ = "fused"  # torch.fx names values by it
        self.pre, self.post = _folded_stages(pre), _folded_stages(post)
        self._fixed_pre = _fixed(self.pre)
        self._fixed_post = _fixed(self.post)
        self._behind = sum(stage.operands for stage in self.post)  # operands of those stages

    def __deepcopy__(self, memo: object) -> Fused:
        return self

    def __call__(self, convolution: Any, x: torch.Tensor, *operands: Any) -> Any:
        """The result; `operands` are those of the stages in their order, or their modules."""
        wrapper = convolution.__dict__.get(WRAPPER)
        if wrapper is None:
            result = self._whole(convolution, x, operands)
            return self._one_by_one(convolution, x, operands) if result is None else result
        found = wrapper.run(convolution, x, lambda inner, padded: self._whole(inner, padded, operands))
        return self._one_by_one(convolution, x, operands) if found is None else found[0]

    def _whole(self, convolution: Any, x: Any, operands: Sequence[Any]) -> Any:
        """The result of one op, None if it would differ from forward's own functions."""
        state = convolution.__dict__.get(NAME)
        last = None if state is None else state.last
        if last is not None and (repeated := self._repeated(last.call, convolution, x, operands)) is not None:
            return repeated
        if not is_plain(x):
            return None
        ahead = len(operands) - self._behind
        pre, post = self._fixed_pre, self._fixed_post
        if pre is None:
            pre = _chain(self.pre, operands[:ahead], x.dim())
            if pre is None or not _fits(pre, x, tuple(x.shape)):
                return None
        if post is None:
            post = _chain(self.post, operands[ahead:], x.dim())
            if post is None or not _fits(post, x, result_shape(convolution, tuple(x.shape))):
                return None
        if last is not None:
            last.weight = None
        result = convolution(x, pre=pre or None, post=post or None)
        if last is not None:
            given = {"pre": operands[:ahead], "post": operands[ahead:]}
            last.keep(self, convolution, x, last.weight, {"pre": pre, "post": post}, given)
        return result

    def _repeated(self, call: Call | None, convolution: Any, x: Any, operands: Sequence[Any]) -> torch.Tensor | None:
        """The result if the call is like the last one: chains with the same operands are not made again."""
        if call is None or not call.is_like(self, convolution, x):
            return None
        ahead = len(operands) - self._behind
        tensors: dict[str, Sequence[torch.Tensor]] = {}
        for name, fixed, stages, given in (
            ("pre", self._fixed_pre, self.pre, operands[:ahead]),
            ("post", self._fixed_post, self.post, operands[ahead:]),
        ):
            if fixed is not None or name in call.given:
                found = fixed.operands if fixed is not None else given
            elif (chain := _chain(stages, given, x.dim())) is not None and chain.text == call.texts.get(name, ""):
                found = chain.operands
            else:
                return None
            if found:
                tensors[name] = found
        return call.repeat(convolution, x, *tensors_of(convolution), tensors)  # type: ignore[no-any-return]

    def _one_by_one(self, convolution: Any, x: Any, operands: Sequence[Any]) -> Any:
        at = 0
        for stage in self.pre:
            x = stage.apply(x, *operands[at : at + stage.operands])
            at += stage.operands
        x = convolution(x)
        for stage in self.post:
            x = stage.apply(x, *operands[at : at + stage.operands])
            at += stage.operands
        return x


class _FoldedStage(NamedTuple):
    """The part of a stage that calls need, without the trace."""

    make: Callable[..., Chain | None]
    apply: Callable[..., Any]
    operands: int
    is_module: bool
    is_constant: bool


def _folded_stages(stages: Sequence[TracedStage]) -> tuple[_FoldedStage, ...]:
    return tuple(
        _FoldedStage(s.make, s.apply, len(s.operands) + (s.module is not None), s.module is not None, s.is_constant)
        for s in stages
    )


def _fixed(stages: Sequence[_FoldedStage]) -> Chain | None:
    """The chain, if it is always the same."""
    if not all(stage.is_constant for stage in stages):
        return None
    return Chain(tuple(one for stage in stages for one in (stage.make() or Chain()).stages))


def _chain(stages: Sequence[_FoldedStage], operands: Sequence[Any], dim: int) -> Chain | None:
    """The chain of a call for values of `dim` dimensions, None if an operand is no tensor or number."""
    found: list[Any] = []
    at = 0
    for stage in stages:
        given = operands[at : at + stage.operands]
        at += stage.operands
        if not stage.is_module and not all(map(_is_operand, given)):
            return None
        made = stage.make(*given)
        if made is None:
            return None
        made = made.for_dim(dim)
        if len(stages) == 1:
            return made
        found.extend(made.stages)
    return Chain(tuple(found))


def _is_operand(given: Any) -> bool:
    if type(given) in PLAIN:
        return given.dtype in FLOATING  # type: ignore[no-any-return]
    return type(given) is float


def _fits(chain: Chain, x: torch.Tensor, shape: tuple[int, ...] | None) -> bool:
    """Whether torch would leave values of that shape, and of x's dtype and device, as they are."""
    for operand in chain.operands:
        if shape is None or operand.dim() > len(shape) or operand.device != x.device:
            return False
        if operand.dtype != x.dtype and not (operand.dim() == 0 and operand.dtype in FLOATING):
            return False
        for extent, size in zip(reversed(operand.shape), reversed(shape), strict=False):
            if extent != size and extent != 1:
                return False
    return True


def result_shape(convolution: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of a convolution's result for an input of that shape."""
    numbers = len(convolution.kernel_size)
    if len(shape) <= numbers:
        return tuple(shape)  # which the convolution refuses
    lengths = []
    for d in range(numbers):
        length, taps = shape[d - numbers], convolution.kernel_size[d]
        reach, stride = convolution.dilation[d] * (taps - 1) + 1, convolution.stride[d]
        if convolution.transposed:
            more = convolution.output_padding[d]
            lengths.append((length - 1) * stride - 2 * convolution.padding[d] + reach + more)
            continue
        padding = convolution.padding
        zeros = 2 * padding[d] if not isinstance(padding, str) else reach - 1 if padding == "same" else 0
        lengths.append((length + zeros - reach) // stride + 1)
    return (*shape[: -numbers - 1], convolution.out_channels, *lengths)
