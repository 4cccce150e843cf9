"""Running ops with chains: the call or its out variant, and a chain on a tensor.

chain.py, a layer above, writes chains; here they are `Stages` that go to the libraries. On the CPU no compiler runs, so
its reference computes a `cpp` stage there: the stages before the first one go with the op, the rest follow tensor by
tensor, and the result is rounded once, as in a single pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad

from ._arguments import check_dtype, check_string, check_tensor, integer
from ._autograd import innermost_transform, require_forward_only
from ._call import is_plain_call, run


class Stages(Protocol):
    """The interface of a chain that this module needs."""

    @property
    def text(self) -> str: ...
    @property
    def operands(self) -> tuple[torch.Tensor, ...]: ...
    @property
    def has_channels(self) -> bool: ...
    @property
    def has_cpp(self) -> bool: ...
    def result_dtype(self, dtype: torch.dtype, /) -> torch.dtype: ...
    def for_dim(self, dim: int, /) -> Stages: ...
    def partition(self) -> tuple[Stages, tuple[Any, ...] | None, Stages]: ...
    def __len__(self) -> int: ...


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a chain is evaluated in, for tensors of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_forward_only(op: str, tensors: Sequence[torch.Tensor | None], *chains: Stages | None) -> None:
    """Raises if a gradient or a forward-mode tangent, of a tensor or a chain operand, would silently be lost."""
    if forward_ad._current_level < 0 and not torch.is_grad_enabled():
        return
    for chain in chains:
        if chain is not None and chain.operands:
            tensors = (*tensors, *chain.operands)
    require_forward_only(op, tensors)


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Whether a subclass or a mode decides what the ops do with a tensor."""
    is_plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return not is_plain or torch._C._len_torch_dispatch_stack() > 0


def operand_list(op: str, input: torch.Tensor, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of a chain as a raw op takes them, in an optional list.

    torch does not look into such a list when it dispatches: it neither resolves lazy negation there nor dispatches to a
    subclass or a transform of torch.func. Negation is resolved here; the others are refused unless the input has
    them too. The rules of _vmap.py take mapped operands of a mapped input.
    """
    if torch.compiler.is_dynamo_compiling():
        return [operand.resolve_neg() for operand in operands]
    functorch = torch._C._functorch
    is_alone = innermost_transform() is not None and not functorch.is_batchedtensor(input)
    if is_alone and any(map(functorch.is_functorch_wrapped_tensor, operands)):
        rule = "an operand of a chain must not be batched by torch.vmap unless the input is"
        raise ValueError(f"{op}: {rule}, got one that is")
    plain = list(operands)
    for i, operand in enumerate(operands):
        if type(operand) is not torch.Tensor and has_own_dispatch(operand) and not has_own_dispatch(input):
            raise TypeError(f"{op}: an operand of a chain must be a plain tensor when the input is one, "
                            f"got {type(operand).__name__}")  # fmt: skip
        if operand.is_neg():
            plain[i] = operand.resolve_neg()
    return plain


def given_options(
    op: str,
    input: torch.Tensor,
    schedule: str,
    depth: int | None,
    dtype: torch.dtype | None = None,
    **chains: Stages | None,
) -> dict[str, Any]:
    """The keyword arguments of a raw op that differ from its schema's defaults; each one costs a call 0.3 us.

    So does this function: the ops that are called most do not call it without such an option.

    `chains` are the op's chain arguments by name; the tensors of `post` go to `post_operands`.
    """
    options: dict[str, Any] = {}
    for name, chain in chains.items():
        if chain:
            options[name] = chain.text
            if chain.operands:
                options[name + "_operands"] = operand_list(op, input, chain.operands)
    if dtype is not None:
        check_dtype(op, dtype)
        options["dtype"] = dtype
    if schedule != "auto":
        check_string(op, "schedule", schedule)
        options["schedule"] = schedule
    if depth is not None:
        options["depth"] = integer(op, "depth", depth)
    return options


def transform(
    x: torch.Tensor,
    chain: Stages,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> torch.Tensor:
    """`sluice.transform` of one chain."""
    check_tensor("transform", "x", x)
    if chain.has_channels:
        chain = chain.for_dim(x.dim())
    operands = chain.operands
    is_plain = is_plain_call(x, *operands)
    if not is_plain:
        require_forward_only("transform", (x, *operands))
    options: dict[str, Any] = {}
    if dtype is not None or depth is not None or schedule != "auto":
        options = given_options("transform", x, schedule, depth, dtype)
    if chain.has_cpp and needs_references(x, chain):
        wide = run("transform", (x, ""), {**options, "dtype": compute_dtype(x.dtype)})
        return _round(_evaluate("transform", wide, chain), out, dtype or chain.result_dtype(x.dtype))
    if operands:
        options["operands"] = operand_list("transform", x, operands)
    return run("transform", (x, chain.text), options, out, is_plain=is_plain)


def needs_references(input: torch.Tensor, *chains: Stages | None) -> bool:
    """Whether a chain has stages that only their references can compute on the input's device."""
    for chain in chains:
        if chain is not None and chain.has_cpp:
            return input.device.type == "cpu"
    return False


def with_references(
    op: str,
    compute: Callable[..., torch.Tensor],
    input: torch.Tensor,
    *,
    pre: Stages | None = None,
    post: Stages | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`compute(input, pre=pre, post=post, out=out, dtype=dtype)`, with references for `cpp` stages.

    `compute` gets the stages that go with the op; `dtype` is then the dtype that it has to return, unrounded.
    """
    if pre is not None and pre.has_cpp:
        input, pre = transform(input, pre, dtype=input.dtype), None
    if post is None or not post.has_cpp:
        return compute(input, pre=pre, post=post, out=out, dtype=dtype)
    first, stage, rest = post.partition()
    values = compute(input, pre=pre, post=first, out=None, dtype=compute_dtype(input.dtype))
    values = _evaluate(op, _call_reference(op, values, stage), rest)
    return _round(values, out, dtype or post.result_dtype(input.dtype))


def _evaluate(op: str, x: torch.Tensor, chain: Stages) -> torch.Tensor:
    """The chain on x, unrounded: x in `compute_dtype`, and so the result."""
    while len(chain) > 0:
        ahead, stage, chain = chain.partition()
        if len(ahead) > 0:
            operands = operand_list(op, x, ahead.operands)
            x = run("transform", (x, ahead.text), {"dtype": x.dtype, "operands": operands})
        if stage is not None:
            x = _call_reference(op, x, stage)
    return x


def _round(values: torch.Tensor, out: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """Rounds to `dtype`, into `out` if it is given."""
    return run("transform", (values, ""), {"dtype": dtype}, out)


def _call_reference(op: str, x: torch.Tensor, stage: tuple[Any, ...] | None) -> torch.Tensor:
    assert stage is not None
    source, *values = stage
    if source.reference is None:
        raise ValueError(
            f"{op}: a cpp stage must be given a reference= to run on the CPU, got {source.name!r} without one"
        )
    named = {
        name: value.to(x.dtype) if isinstance(value, torch.Tensor) else value
        for name, value in zip(source.parameters, values, strict=True)
    }
    result = source.reference(x, **named)
    if not isinstance(result, torch.Tensor) or result.shape != x.shape:
        shape = tuple(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise ValueError(
            f"{op}: the reference of {source.name!r} must return a tensor of shape {tuple(x.shape)}, got {shape}"
        )
    return result.to(x.dtype)
