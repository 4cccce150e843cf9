"""Suite `filter2d`: stencils over 1080p frames, one and 64 of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import torch
import torch.nn.functional as F

import sluice
from sluice.bench import DTYPES, Case, Suite, Workload, compiled, fresh


def _torch(x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The code that users write today. `kernel` is (C, K, K)."""
    return F.conv2d(x, kernel[:, None], padding="same", groups=kernel.shape[0])


def _torch_separable(x: torch.Tensor, column: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """The two passes that users write today; kernels are (C, K)."""
    across = F.conv2d(x, row[:, None, None], padding="same", groups=row.shape[0])
    return F.conv2d(across, column[:, None, :, None], padding="same", groups=column.shape[0])


def _torchvision(x: torch.Tensor, size: int) -> Callable[[], object] | None:
    """torchvision's Gaussian blur, its only stencil, with a kernel of this size; if it is installed."""
    try:
        functional = importlib.import_module("torchvision.transforms.v2.functional")
    except ImportError:
        return None
    return lambda: functional.gaussian_blur(x, [size, size])


def _make(
    shape: tuple[int, int, int, int],
    size: int,
    dtype: str,
    separable: bool,
    schedule: str,
    depth: int | None,
    device: torch.device,
) -> Workload:
    channels = shape[1]
    x = fresh(*shape, dtype=dtype, device=device)
    # Scaled so that results have variance 1.
    column, row = (fresh(channels, size, dtype=dtype, device=device) * size**-0.5 for _ in range(2))
    dense = fresh(channels, size, size, dtype=dtype, device=device) / size
    kernel = (column, row) if separable else dense

    def ours(out: torch.Tensor | None = None) -> torch.Tensor:
        return sluice.filter2d(x, kernel, schedule=schedule, depth=depth, out=out)

    def reference() -> torch.Tensor:
        wide = (column.double(), row.double()) if separable else dense.double()
        return sluice.reference.filter2d(x.double(), wide)

    if separable:
        torch_peer: Callable[[], object] = lambda: _torch_separable(x, column, row)  # noqa: E731
        compiled_peer = compiled(_torch_separable, x, column, row)
    else:
        torch_peer = lambda: _torch(x, dense)  # noqa: E731
        compiled_peer = compiled(_torch, x, dense)
    peers = {"torch": torch_peer, "torch_compile": compiled_peer, "torchvision": _torchvision(x, size)}
    taps = 2 * size if separable else size * size
    return Workload(
        ours=ours,
        write=ours,
        reference=reference,
        plan=sluice.plan("filter2d", x, kernel, schedule=schedule, depth=depth),
        traffic=(2 * x.numel() + channels * taps) * DTYPES[dtype].itemsize,
        flops=2 * x.numel() * taps,
        peers=peers if schedule == "auto" else {},  # a forced schedule's peers are in the row of "auto"
    )


def stencil_case(
    shape: tuple[int, int, int, int],
    size: int,
    dtype: str,
    *,
    separable: bool = False,
    schedule: str = "auto",
    depth: int | None = None,
) -> Case:
    """`shape` is (B, C, H, W), the kernel `size` x `size`."""
    batch, channels, height, width = shape
    name = f"{batch}x{channels}x{height}x{width} {size}x{size} {dtype}{' separable' if separable else ''}"
    params: dict[str, int | str] = {
        "B": batch,
        "C": channels,
        "H": height,
        "W": width,
        "K": size,
        "dtype": dtype,
        "op": "filter2d",
    }
    if separable:
        params["fn"] = "separable"
    return Case(
        name=name if schedule == "auto" else f"{name} {schedule}" + ("" if depth is None else f" {depth}"),
        params=params,
        make=functools.partial(_make, shape, size, dtype, separable, schedule, depth),
        auto=schedule == "auto",
    )


_FRAME, _FRAMES = (1, 1, 1080, 1920), (64, 1, 1080, 1920)
_COLOUR = (16, 3, 1080, 1920)
_SIZES = (3, 5, 11, 31)
_COMPARED = (3, 5, 7, 9, 11, 31)  # in three forms

SUITE = Suite(
    "filter2d",
    [
        *(
            stencil_case(shape, size, dtype)
            for shape in (_FRAME, _FRAMES)
            for dtype in ("fp32", "fp16")
            for size in _SIZES
        ),
        *(stencil_case(_COLOUR, size, "fp16") for size in (3, 5)),
        *(stencil_case(_FRAMES, size, dtype, separable=True) for dtype in ("fp32", "fp16") for size in (11, 31)),
        *(stencil_case((64, 1, 1079, 1919), 3, dtype) for dtype in ("fp32", "fp16")),
        # Serial, double-buffered and three-stage: the forms that articles on hiding copies compare.
        *(stencil_case(_FRAMES, size, "fp32") for size in _COMPARED if size not in _SIZES),
        *(
            stencil_case(_FRAMES, size, "fp32", schedule=schedule, depth=depth)
            for size in _COMPARED
            for schedule, depth in (("sync", 1), ("two_stage", None), ("multi_stage", 3))
        ),
    ],
)
