"""`plan`: how an op will run, and why, without running it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import torch

from ._fake import is_channels_last, is_dense
from ._library import raise_as_python
from .conv1d import single
from .filter2d import Kernel, empty_result, raw_arguments
from .info import linking
from .stages import Chain


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
        ValueError: an unknown op, or a request that cannot be met on that device.

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
    if op not in planners:
        raise ValueError(f"plan: op must be one of {', '.join(planners)}, got {op!r}")
    numbers = list(dataclasses.astuple(device or current_device()))
    form, form_reason = _form(op, *args, **kwargs)
    try:
        text = planners[op](numbers, *args, linked=form == "linked", **kwargs)
        return Plan(**json.loads(text), form=form, form_reason=form_reason)
    except RuntimeError as error:
        raise_as_python("plan", error, torch.device("cpu"))


def _form(op: str, x: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[str, str]:
    """Which form of the kernel would run, and why."""
    chains = [kwargs.get("pre"), kwargs.get("post"), kwargs.get("chain")]
    if op == "transform" and args:
        chains.append(args[0])
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
    return str(torch.ops.sluice._plan_transform(x.numel(), inner, x.dtype, schedule, depth, linked, device))


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
    x = input if input.dim() == 3 else input.unsqueeze(0)
    step, spread, taps = single("stride", stride), single("dilation", dilation), weight.shape[-1]
    reach = spread * (taps - 1)
    zeros = {"same": reach, "valid": 0}[padding] if isinstance(padding, str) else 2 * single("padding", padding)
    sizes = [x.shape[0], weight.shape[0], (x.shape[2] + zeros - reach - 1) // step + 1]
    multiplier = weight.shape[0] // x.shape[1]
    depthwise = groups == x.shape[1] and weight.shape[1] == 1
    shape = (sizes, multiplier, taps, step, spread, depthwise, is_channels_last(x))
    chains = (bool(pre), bool(post), bool(post and post.operands))
    return str(torch.ops.sluice._plan_conv1d(*shape, *chains, x.dtype, schedule, depth, linked, device))


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
    shape = (list(x.shape), 1, weight.shape[-1], 1, 1, True, is_channels_last(x))
    tensors = residual is not None or bool(post and post.operands)
    chains = (bool(pre), tensors or bool(post) or activation is not None, tensors)
    return str(torch.ops.sluice._plan_conv1d(*shape, *chains, x.dtype, schedule, depth, linked, device))


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
    taps = (column.shape[-2], column.shape[-1]) if row is None else (column.shape[-1], row.shape[-1])
    computed = torch.float32 if image.dtype == torch.uint8 else image.dtype
    if out is None:
        like = torch.empty_strided(image.shape, image.stride(), dtype=computed, device="meta")
        out = empty_result(like, taps, zeros, dtype or (post.result_dtype(computed) if post else computed))
    return str(
        torch.ops.sluice._plan_filter2d(
            _sizes_and_strides(image),
            computed,
            _sizes_and_strides(out),
            out.dtype,
            list(taps),
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
    )


def _sizes_and_strides(x: torch.Tensor) -> list[int]:
    """(batch, channels, H, W), then their strides; the batch's is what those of all its dimensions are multiples of."""
    batch = [stride for size, stride in zip(x.shape[:-3], x.stride(), strict=False) if size > 1]
    channels = (x.shape[-3], x.stride(-3)) if x.dim() > 2 else (1, 0)
    sizes = [math.prod(x.shape[:-3]), channels[0], *x.shape[-2:]]
    return [*sizes, math.gcd(*batch), channels[1], *x.stride()[-2:]]
