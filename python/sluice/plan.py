"""`plan`: how an op will run, and why, without running it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ._modes import call_mode
from ._registry import find
from .chain import Chain, PerChannel
from .info import linking
from .pack import PackedWeight

# Storage offsets that are equal modulo this number of elements have the same alignment, for every dtype.
_ALIGNED = 1024


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a call runs, and why.

    Attributes:
        schedule: the schedule's name, or "aten" if torch's own kernel computes the result.
        depth: pipeline stages in flight; 1 without a ring.
        tile: outputs of one tile.
        threads: of one block.
        shared_memory: dynamic shared memory of one block, in bytes.
        grid: blocks.
        reason: why, in a sentence.
        form: "linked" if the chain is compiled into the kernel, "interpreted" if the kernel runs it stage by stage,
            "" without a chain.
        form_reason: why, in a sentence.
        method: the method that computes the result: "transform", "depthwise", "long_filter", "fourier", "dense",
            "few_outputs", "stencil", or "aten" for torch's own kernels.
        kernel: the kernel's name in the library.
        workspace_bytes: device memory that the kernel needs in addition to inputs and result.
        alignment: bytes to which the kernel's vectors are aligned in device memory; unaligned data is shifted or copied
            element by element.
        copy_width: bytes of one load or copy from device memory, if the input's elements are contiguous.
        resident_blocks: blocks that an SM holds at once: exact for a ring, a lower bound otherwise, or 0 if the linker
            decides.
        detail: the method's other decisions, as text.
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
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Device:
    """The properties of a GPU that a plan needs; a device made by hand plans for an absent GPU."""

    compute_capability: int = 90
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    shared_memory_per_multiprocessor: int = 233472
    shared_memory_per_block: int = 232448


H200 = Device()


def current_device() -> Device:
    """The current CUDA device, or one H200 without one."""
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
        op: "transform", "conv1d", "conv_transpose1d", "causal_conv1d", "causal_conv_transpose1d" or "filter2d".
        *args: the op's arguments. Tensors may be on any device, also "meta": only their shapes, strides, storage
            offsets and dtypes count. Without a chain `transform` is a copy.
        device: the GPU to plan for; by default the current one, or one H200 without one.
        **kwargs: the op's keyword arguments.

    Returns:
        A `Plan`; its `reason` is a sentence. For a list of chains, the plan of the first pass.

    Raises:
        TypeError: an argument of another type than the op takes, or one that it does not have.
        ValueError: an unknown op, arguments that the op refuses, a result without elements, or a request that cannot be
            met on that device.

    Example:
        >>> import torch, sluice
        >>> x = torch.empty(8, 512, 2048, device="meta", dtype=torch.bfloat16)
        >>> w = torch.empty(512, 4, device="meta", dtype=torch.bfloat16)
        >>> sluice.plan("causal_conv1d", x, w).schedule
        'direct'
    """
    function = find("plan", op).function
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"plan: device must be a sluice.plan.Device, got {type(device).__name__}")
    if op == "transform" and len(args) == 1:
        kwargs.setdefault("chain", Chain())
    numbers = list(dataclasses.astuple(device or current_device()))
    state = linking()
    links = not state["unavailable"] and state["mode"] != "never"
    # A plan depends on shapes only, not on autograd or a mode.
    with _disable_current_modes(), torch.no_grad(), call_mode("plan", linked=links, device=numbers) as texts:
        known: dict[int, torch.Tensor] = {}
        function(*_imagined(args, known), **_imagined(kwargs, known))
    if not texts:
        raise ValueError(f"plan: the call must have a result, got {op} of no chains")
    found = json.loads(texts[0])
    elements = found.pop("elements")
    return Plan(**found, form_reason=_form_reason(found["form"], found["method"], elements, state))


def _imagined(value: Any, known: dict[int, torch.Tensor]) -> Any:
    """`value` with tensors without memory instead of its tensors; a tensor's replacement is always the same."""
    if isinstance(value, torch.Tensor):
        if id(value) not in known:
            known[id(value)] = _without_memory(value)
        return known[id(value)]
    if isinstance(value, PackedWeight):
        return PackedWeight(_imagined(value.weight, known), _imagined(value.packed, known), value.numbers)
    if isinstance(value, Chain):
        return value.with_values(lambda one: _imagined(one, known))
    if isinstance(value, PerChannel):
        return PerChannel(_imagined(value.values, known))
    if isinstance(value, dict):
        return {name: _imagined(one, known) for name, one in value.items()}
    return type(value)(_imagined(one, known) for one in value) if type(value) in (list, tuple) else value


def _without_memory(x: torch.Tensor) -> torch.Tensor:
    if x.layout != torch.strided:
        raise TypeError(f"plan: a tensor must be a strided tensor, got {x.layout}")
    if x.numel() == 0:
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    offset = x.storage_offset() % _ALIGNED
    extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return torch.empty(extent, dtype=x.dtype, device="meta").as_strided(x.shape, x.stride(), offset)


def _form_reason(form: str, method: str, elements: int, state: dict[str, Any]) -> str:
    if not form:
        return "there is no chain"
    if form == "interpreted":
        return str(state["unavailable"] or "SLUICE_LINK=0 is set")
    small, calls = state["small_below"], state["calls_of_small"]
    if elements < small and state["mode"] == "auto":
        ahead = ", or at the first call if it is prelinked" if method == "dense" and state["prelinked"] else ""
        return f"linked after {calls} calls{ahead}, because problems under {small} elements may be rare"
    return "linked at the first call"
