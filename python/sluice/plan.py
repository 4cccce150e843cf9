"""`plan`: how an op will run, and why, without running it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import torch

from ._fake import is_channels_last, is_dense
from ._library import check_tensor, raise_as_python
from ._registry import find
from .causal_conv1d import ACTIVATIONS
from .chain import Chain
from .conv1d import sides, single
from .filter2d import Kernel, empty_result, raw_arguments, result_size
from .info import linking


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a kernel is launched with.

    Attributes:
        schedule: the schedule's name, or "aten" where torch's own kernel does the work.
        depth: stages in flight; 1 where there is no ring.
        tile: outputs of one tile.
        threads: of one block.
        shared_memory: dynamic shared memory of one block, in bytes.
        grid: blocks.
        reason: why, in a sentence.
        form: "linked" where the chain is compiled into the kernel, "interpreted" where the kernel runs it step by
            step, "" where there is no chain.
        form_reason: why, in a sentence.
        method: how the result is computed: "transform", "depthwise", "stencil", or "aten" for torch's own kernels.
        kernel: the kernel that runs, by its name in the library.
        workspace_bytes: device memory that the kernel needs beside inputs and result.
        alignment: bytes at whose multiples the kernel's vectors lie in device memory; what lies otherwise is shifted or
            goes element by element.
        copy_width: bytes of one load or copy out of device memory, where the input's elements are side by side.
        resident_blocks: blocks that a multiprocessor holds at once: those of a ring's grid; elsewhere at least so many,
            or 0 where the linker decides.
    """

    schedule: str
    depth: int
    tile: int
    threads: int
    shared_memory: int
    grid: int
    reason: str
    form: str = ""
    form_reason: str = "there is no chain"
    method: str = ""
    kernel: str = ""
    workspace_bytes: int = 0
    alignment: int = 0
    copy_width: int = 0
    resident_blocks: int = 0


@dataclasses.dataclass(frozen=True)
class Device:
    """What a plan needs to know of a GPU: made by hand, plans can be made for one that is not there."""

    compute_capability: int = 90
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    shared_memory_per_multiprocessor: int = 233472
    shared_memory_per_block: int = 232448


H200 = Device()


def current_device() -> Device:
    """The current CUDA device, or one H200 where there is none."""
    if not torch.cuda.is_available():
        return H200
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Device(
        properties.major * 10 + properties.minor,
        properties.multi_processor_count,
        properties.max_threads_per_multi_processor,
        properties.shared_memory_per_multiprocessor,
        getattr(properties, "shared_memory_per_block_optin", H200.shared_memory_per_block),
    )


def plan(op: str, *args: Any, device: Device | None = None, **kwargs: Any) -> Plan:
    """The plan that `sluice.<op>(*args, **kwargs)` would run by on a GPU.

    Args:
        op: "transform", "conv1d", "causal_conv1d" or "filter2d".
        *args: the op's arguments. Tensors may lie anywhere, on the "meta" device too: only their shapes, strides
            and dtypes count.
        device: the GPU to plan for; by default the current one, or one H200 where there is none.
        **kwargs: the op's keyword arguments.

    Returns:
        A `Plan`; its `reason` is a sentence.

    Raises:
        TypeError: an argument of another type than the op takes.
        ValueError: an unknown op, arguments that the op refuses, a result without elements, or a request that cannot be
            met on that device.

    Example:
        >>> import torch, sluice
        >>> x = torch.empty(8, 512, 2048, device="meta", dtype=torch.bfloat16)
        >>> w = torch.empty(512, 4, device="meta", dtype=torch.bfloat16)
        >>> sluice.plan("causal_conv1d", x, w).schedule
        'direct'
    """
    planners: dict[str, Callable[..., str]] = {
        "transform": _plan_transform,
        "conv1d": _plan_conv1d,
        "causal_conv1d": _plan_causal_conv1d,
        "filter2d": _plan_filter2d,
    }
    find("plan", op)
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"plan: device must be a sluice.plan.Device, got {type(device).__name__}")
    numbers = list(dataclasses.astuple(device or current_device()))
    form, form_reason = _form(op, *args, **kwargs)
    text = planners[op](numbers, *args, linked=form == "linked", **kwargs)
    return Plan(**json.loads(text), form=form, form_reason=form_reason)


def _ask(function: Callable[..., Any], *arguments: Any) -> str:
    """The plan as JSON, with errors of the types that a Python caller expects."""
    try:
        return str(function(*arguments))
    except RuntimeError as error:
        # Torch's own, of numbers and strings that are neither.
        if "Expected a value of type" in str(error) or "Overflow when unpacking long" in str(error):
            raise TypeError(f"plan: {str(error).splitlines()[0]}") from None
        raise_as_python("plan", error, torch.device("cpu"))


def _form(op: str, x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[str, str]:
    """Which form of the kernel would run, and why."""
    check_tensor("plan", "the op's first argument", x)
    if x.layout != torch.strided:
        raise TypeError(f"plan: the op's first argument must be a strided tensor, got {x.layout}")
    chains = [kwargs.get("pre"), kwargs.get("post"), kwargs.get("chain")]
    if op == "transform" and args:
        chains.append(args[0])
    for chain in chains:
        for part in chain if op == "transform" and isinstance(chain, (list, tuple)) else [chain]:
            if part is not None and not isinstance(part, Chain):
                raise TypeError(f"plan: a chain must be a sluice.Chain, got {type(part).__name__}")
    if not any(chains) and kwargs.get("activation") is None:
        return "", "there is no chain"
    state = linking()
    if state["unavailable"]:
        return "interpreted", str(state["unavailable"])
    if state["mode"] == "never":
        return "interpreted", "SLUICE_LINK=0 is set"
    small, calls = state["small_below"], state["calls_of_small"]
    if x.numel() < small and state["mode"] == "auto":
        return "linked", f"linked after {calls} calls, because a problem under {small} elements may be rare"
    return "linked", "linked at the first call"


def _plan_transform(
    device: list[int],
    x: torch.Tensor,
    chain: Chain | None = None,
    *,
    linked: bool,
    schedule: str = "auto",
    depth: int | None = None,
    **_: Any,
) -> str:
    inner = x.numel() if is_dense(x) else x.shape[-1]
    return _ask(torch.ops.sluice._plan_transform, x.numel(), inner, x.dtype, schedule, depth, linked, device)


def _plan_conv1d(
    device: list[int],
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0,
    dilation: int | tuple[int] = 1,
    groups: int = 1,
    *,
    linked: bool,
    pre: Chain | None = None,
    post: Chain | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    **_: Any,
) -> str:
    check_tensor("plan", "weight", weight)
    x = input.unsqueeze(0) if input.dim() == 2 else input
    step, spread = single("stride", stride), single("dilation", dilation)
    left, right = sides(padding, weight, step, spread)
    zeros = (left, left if right is None else right)
    channels_last = x.dim() == 3 and is_channels_last(x)
    shape = (list(x.shape), list(weight.shape), step, *zeros, spread, groups, channels_last)
    chains = (bool(pre), bool(post), bool(post and post.operands))
    return _ask(torch.ops.sluice._plan_conv1d, *shape, *chains, x.dtype, schedule, depth, linked, device)


def _plan_causal_conv1d(
    device: list[int],
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    linked: bool,
    pre: Chain | None = None,
    post: Chain | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
    **_: Any,
) -> str:
    check_tensor("plan", "weight", weight)
    if activation not in ACTIVATIONS:
        raise ValueError(f"plan: activation must be None, identity, silu or swish, got {activation!r}")
    if x.dim() != 3:
        raise ValueError(f"plan: x must have shape (batch, channels, length), got {tuple(x.shape)}")
    batch, channels, length = x.shape
    if weight.dim() != 2 or weight.shape[0] != channels:
        raise ValueError(f"plan: weight must have shape (C, K) with C = {channels}, got {tuple(weight.shape)}")
    if x.numel() == 0 or weight.numel() == 0:
        raise ValueError(f"plan: x and weight must have elements, got {tuple(x.shape)} and {tuple(weight.shape)}")
    taps = weight.shape[1]
    shape = ([batch, channels, length], [channels, 1, taps], 1, taps - 1, 0, 1, channels, is_channels_last(x))
    tensors = residual is not None or bool(post and post.operands)
    chains = (bool(pre), tensors or bool(post) or ACTIVATIONS[activation] is not None, tensors)
    return _ask(torch.ops.sluice._plan_conv1d, *shape, *chains, x.dtype, schedule, depth, linked, device)


def _plan_filter2d(
    device: list[int],
    image: torch.Tensor,
    kernel: Kernel,
    bias: torch.Tensor | None = None,
    padding: str | tuple[int, int] = "same",
    *,
    linked: bool,
    pre: Chain | None = None,
    post: Chain | None = None,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    schedule: str = "auto",
    depth: int | None = None,
) -> str:
    column, row, zeros = raw_arguments(kernel, padding)
    taps, size = _stencil(image, column, row, zeros)
    computed = torch.float32 if image.dtype == torch.uint8 else image.dtype
    if out is None:
        like = torch.empty_strided(image.shape, image.stride(), dtype=computed, device="meta")
        wanted = dtype or (post.result_dtype(computed) if post else computed)
        out = empty_result(like, (taps[0], taps[1]), zeros, wanted)
    check_tensor("plan", "out", out)
    if out.shape != size:
        raise ValueError(f"plan: out must have shape {tuple(size)}, got {tuple(out.shape)}")
    return _ask(
        torch.ops.sluice._plan_filter2d,
        _sizes_and_strides(image),
        computed,
        _sizes_and_strides(out),
        out.dtype,
        taps,
        row is not None,
        zeros or [(taps[0] - 1) // 2, (taps[1] - 1) // 2],
        bool(pre),
        bool(post),
        post is not None and len(post.operands) > 0,
        schedule,
        depth,
        linked,
        device,
    )


def _stencil(
    image: torch.Tensor, column: torch.Tensor, row: torch.Tensor | None, zeros: list[int] | None
) -> tuple[list[int], torch.Size]:
    """The kernel's height and width, and the result's shape."""
    if image.dim() < 2:
        raise ValueError(f"plan: image must have shape (..., H, W), got {tuple(image.shape)}")
    parts = [column] if row is None else [column, row]
    plain = 2 if row is None else 1
    channels = image.shape[-3] if image.dim() > 2 else None
    for part in parts:
        fits = part.dim() == plain or (part.dim() == plain + 1 and part.shape[0] == channels)
        if not fits or part.dim() != column.dim() or part.numel() == 0:
            raise ValueError(
                "plan: kernel must have shape (kh, kw) or (C, kh, kw), or be two vectors (kh,) and (kw,) or "
                f"(C, kh) and (C, kw), with C = {channels}, got {' and '.join(str(tuple(p.shape)) for p in parts)}"
            )
    if zeros is not None and len(zeros) != 2:
        raise ValueError(f"plan: padding must be two numbers, got {len(zeros)}")
    height, width = (column.shape[-2] if row is None else column.shape[-1]), parts[-1].shape[-1]
    size = result_size(image, height, width, zeros)
    if min(*size, *image.shape) < 1 or image.shape[:-2].numel() * size[0] * size[1] >= 1 << 48:
        raise ValueError(
            f"plan: the result must have 1 to 2^48 - 1 elements, got {size[0]} x {size[1]} of {tuple(image.shape)}"
        )
    return [height, width], torch.Size((*image.shape[:-2], *size))


def _sizes_and_strides(x: torch.Tensor) -> list[int]:
    """(batch, channels, H, W), then their strides; the batch's is what those of all its dimensions are multiples of."""
    batch = [stride for size, stride in zip(x.shape[:-3], x.stride(), strict=False) if size > 1]
    channels = (x.shape[-3], x.stride(-3)) if x.dim() > 2 else (1, 0)
    sizes = [math.prod(x.shape[:-3]), channels[0], *x.shape[-2:]]
    return [*sizes, math.gcd(*batch), channels[1], *x.stride()[-2:]]
