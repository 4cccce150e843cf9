"""Random problems for a GPU, by families: depthwise, dense, strided, grouped, transposed convolutions, and stencils.

A case is drawn only from its family and its seed. Sizes are log-uniform, half of them round, in both layouts and in all
dtypes of the family. A third of the dense, strided and transposed problems are float32: half with torch's TF32 setting
on ("tf32"), half with it off ("fp32").
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

import sluice
from image_peer import as_image, is_slow
from sluice import stages
from sluice.bench import ALLOWS_TF32, DTYPES, Case, Workload
from sluice.bench.ceilings import FMA_TFLOPS, MATMUL_TFLOPS
from sluice.bench.schema import Parameters
from sluice.bench.timing import Call

Make = Callable[[torch.device, str], Workload]  # (device, schedule)

_LEAST_BYTES, _MOST_BYTES = 2e6, 600e6  # read and written by depthwise convolutions and stencils
_MOST_ELEMENTS = 1 << 28  # inputs and outputs of dense convolutions
_MOST_PRODUCTS = 1 << 41  # six milliseconds of tensor cores
_TILE = 16  # outputs per row of a Toeplitz product


@dataclasses.dataclass(frozen=True)
class Problem:
    """A case without its seed. `op` is its operator's name, `make` allocates its tensors; `Case` has `allows_tf32`."""

    op: str
    text: str
    params: Parameters
    make: Make
    allows_tf32: bool | None = None


def _log_uniform(pick: random.Random, low: float, high: float) -> float:
    return low * (high / low) ** pick.random()


def _near(pick: random.Random, size: float, unit: int) -> int:
    """A number near `size`; about half are multiples of `unit`."""
    extent = max(1, round(size))
    return max(1, extent // unit) * unit if pick.random() < 0.5 else extent


def _between(pick: random.Random, low: int, high: int) -> int:
    """A log-uniform number between the two; about half are multiples of 8."""
    extent = int(_log_uniform(pick, low, high))
    return max(low, extent // 8 * 8) if pick.random() < 0.5 else extent


def _or_float32(pick: random.Random, half_type: str) -> str:
    """The dtype of a dense problem. Drawn after its sizes, which therefore do not depend on it."""
    return pick.choice((half_type,) * 4 + tuple(ALLOWS_TF32))


def _input(sizes: tuple[int, ...], dtype: str, layout: str, device: torch.device) -> torch.Tensor:
    """Random numbers of shape (B, C, ...); `cl`: channels-last."""
    if layout == "cf":
        return torch.randn(sizes, dtype=DTYPES[dtype], device=device)
    batch, channels, *rest = sizes
    return torch.randn(batch, *rest, channels, dtype=DTYPES[dtype], device=device).movedim(-1, 1)


def _on_images(op: str, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, numbers: tuple[int, ...]) -> Call | None:
    """The convolution with GELU after it on images of one row, if the input is channels-last already."""
    channels = x.shape[1]
    if x.stride(1) != 1 or x.stride(2) < channels or channels == 1 or is_slow(channels, w.shape[2]):
        return None
    image, convolve = as_image(op, x, w, b, numbers)
    return lambda: F.gelu(convolve(image))


def _toeplitz_or_fourier(outputs: int, taps: int, products: int, dtype: str) -> tuple[int, int]:
    """The operations of the fastest exact method, on FMA and on tensor cores.

    Args:
        outputs: the number of outputs.
        taps: taps along a row.
        products: products per output.
        dtype: half types can be multiplied on tensor cores, `taps + 15` columns for `taps`.
    """
    fourier = (5 * math.log2(4 * taps) + 3) * 4 / 3 * products / taps  # blocks of four times the taps, overlapping
    on_fma = outputs * min(2.0 * products, fourier)
    on_tensor_cores = outputs * 2.0 * products / taps * (taps + _TILE - 1)
    if dtype == "fp32" or on_fma / FMA_TFLOPS < on_tensor_cores / MATMUL_TFLOPS:
        return int(on_fma), 0
    return 0, int(on_tensor_cores)


def depthwise(pick: random.Random) -> Problem | None:
    """2 to 512 taps, 2 to 600 MB."""
    dtype, layout = pick.choice(("fp32", "fp16", "bf16")), pick.choice(("cf", "cl"))
    taps = round(_log_uniform(pick, 2, 512))
    elements = _log_uniform(pick, _LEAST_BYTES, _MOST_BYTES) / (2 * DTYPES[dtype].itemsize)
    batch = round(_log_uniform(pick, 1, 64))
    channels = _near(pick, _log_uniform(pick, 2, min(4096, max(2.0, elements / batch / max(taps, 64)))), 32)
    length = max(taps, _near(pick, elements / batch / channels, 32))
    padding = pick.choice((0, taps // 2, taps - 1))
    outputs = batch * channels * (length + 2 * padding - taps + 1)
    flops, matmul_flops = _toeplitz_or_fourier(outputs, taps, taps, dtype)

    def make(device: torch.device, schedule: str) -> Workload:
        x = _input((batch, channels, length), dtype, layout, device)
        w = torch.randn(channels, 1, taps, dtype=DTYPES[dtype], device=device) * taps**-0.5
        arguments = (x, w, None, 1, padding, 1, channels)
        return Workload(
            ours=lambda: sluice.conv1d(*arguments, schedule=schedule),
            write=lambda out: sluice.conv1d(*arguments, schedule=schedule, out=out),
            reference=lambda: sluice.reference.conv1d(x.double(), w.double(), *arguments[2:]),
            plan=sluice.plan("conv1d", *arguments, schedule=schedule),
            traffic=(x.numel() + outputs + w.numel()) * x.itemsize,
            flops=flops,
            matmul_flops=matmul_flops,
            peers={"torch": lambda: F.conv1d(*arguments)},
        )

    text = f"{batch}x{channels}x{length} K={taps} p={padding} {dtype} {layout}"
    sizes = {"B": batch, "C": channels, "L": length, "K": taps, "padding": padding}
    return Problem("conv1d", text, {**sizes, "dtype": dtype, "layout": layout, "op": "conv1d"}, make)


def _dense(
    sizes: tuple[int, int, int, int],
    taps: int,
    stride: int,
    padding: int,
    dilation: int,
    groups: int,
    last: bool,
    dtype: str,
) -> Problem | None:
    """`sizes` are B, Cin, Cout, L; with GELU after it. None if it is too large or has no result."""
    batch, inputs, outputs, length = sizes
    output_length = (length + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
    elements = batch * (inputs * length + outputs * max(output_length, 0))
    products = batch * outputs * output_length * (inputs // groups) * taps
    if output_length < 1 or elements > _MOST_ELEMENTS or products > _MOST_PRODUCTS:
        return None
    layout = "cl" if last else "cf"

    def make(device: torch.device, schedule: str) -> Workload:
        x = _input((batch, inputs, length), dtype, layout, device)
        w = torch.randn(outputs, inputs // groups, taps, dtype=DTYPES[dtype], device=device)
        w *= (inputs // groups * taps) ** -0.5
        b = torch.randn(outputs, dtype=DTYPES[dtype], device=device)
        numbers = (stride, padding, dilation, groups)
        post = stages.gelu()
        sluice.prepare(post, x, w, b, *numbers, op="conv1d")
        return Workload(
            ours=lambda: sluice.conv1d(x, w, b, *numbers, post=post, schedule=schedule),
            write=lambda out: sluice.conv1d(x, w, b, *numbers, post=post, schedule=schedule, out=out),
            reference=lambda: F.gelu(F.conv1d(x.double(), w.double(), b.double(), *numbers)),
            plan=sluice.plan("conv1d", x, w, b, *numbers, post=post, schedule=schedule),
            traffic=(elements + w.numel()) * x.itemsize,
            matmul_flops=2 * products,
            peers={
                "torch": lambda: F.gelu(F.conv1d(x, w, b, *numbers)),
                "conv2d_channels_last": _on_images("conv1d", x, w, b, numbers),
            },
        )

    extra = f" s={stride} g={groups}" if stride > 1 or groups > 1 else ""
    text = f"{batch}x{inputs}x{length} to {outputs} K={taps}{extra} d={dilation} p={padding} {dtype} {layout}"
    params: dict[str, int | str] = {"B": batch, "Cin": inputs, "Cout": outputs, "L": length, "K": taps}
    params |= {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    params |= {"dtype": dtype, "layout": layout, "op": "conv1d", "fn": "gelu"}
    return Problem("conv1d", text, params, make, ALLOWS_TF32.get(dtype))


def dense(pick: random.Random) -> Problem | None:
    """Stride 1: 1 to 2048 channels, 1 to 65 taps, 1 to 200,000 positions."""
    inputs, outputs = _between(pick, 1, 2048), _between(pick, 1, 2048)
    taps, length, batch = _between(pick, 1, 65), _between(pick, 1, 200_000), pick.choice((1, 2, 4, 8, 16, 64))
    dilation = pick.choice((1, 1, 1, 2, 3, 9))
    padding = pick.choice((0, (taps - 1) * dilation // 2))
    last, dtype = pick.random() < 0.3, pick.choice(("fp16", "bf16"))
    dtype = _or_float32(pick, dtype)
    return _dense((batch, inputs, outputs, length), taps, 1, padding, dilation, 1, last, dtype)


def strided(pick: random.Random) -> Problem | None:
    """Strides 1 to 8, about every second problem in 2 to 64 groups of 1 to 128 channels."""
    stride = pick.choice((1, 2, 2, 3, 4, 5, 8))
    groups = 1 if stride > 1 and pick.random() < 0.6 else round(_log_uniform(pick, 2, 64))
    most = 2048 if groups == 1 else 128
    inputs, outputs = groups * _between(pick, 1, most), groups * _between(pick, 1, most)
    taps, length, batch = _between(pick, 1, 130), _between(pick, 1, 200_000), pick.choice((1, 2, 4, 8, 16, 64))
    dilation = pick.choice((1, 1, 1, 2, 3))
    padding = pick.choice((0, (taps - 1) * dilation // 2))
    last, dtype = pick.random() < 0.3, pick.choice(("fp16", "bf16"))
    dtype = _or_float32(pick, dtype)
    return _dense((batch, inputs, outputs, length), taps, stride, padding, dilation, groups, last, dtype)


def transposed(pick: random.Random) -> Problem | None:
    """Strides 1 to 8, some with output_padding, dilation or groups, with GELU after it."""
    stride, dtype = pick.choice((1, 2, 2, 3, 4, 5, 8, 8)), pick.choice(("fp16", "bf16"))
    groups = pick.choice((1, 1, 1, 1, round(_log_uniform(pick, 2, 64))))
    most = 2048 if groups == 1 else 64
    inputs, outputs = groups * _between(pick, 1, most), groups * _between(pick, 1, most)
    taps = stride * pick.choice((1, 2, 2, 3)) if pick.random() < 0.7 else _between(pick, 1, 40)
    length, batch = _between(pick, 1, 50_000), pick.choice((1, 2, 4, 8, 16, 64))
    dilation, layout = pick.choice((1, 1, 1, 1, 2, 3)), pick.choice(("cf", "cf", "cl"))
    padding = pick.choice((0, max(0, taps - stride) // 2))
    output_padding = pick.choice((0, 0, max(stride, dilation) - 1))
    dtype = _or_float32(pick, dtype)
    output_length = (length - 1) * stride - 2 * padding + dilation * (taps - 1) + output_padding + 1
    elements = batch * (inputs * length + outputs * max(output_length, 0))
    products = batch * inputs * length * taps * (outputs // groups)
    if output_length < 1 or elements > _MOST_ELEMENTS or products > _MOST_PRODUCTS:
        return None
    numbers = (stride, padding, output_padding, groups, dilation)

    def make(device: torch.device, schedule: str) -> Workload:
        x = _input((batch, inputs, length), dtype, layout, device)
        w = torch.randn(inputs, outputs // groups, taps, dtype=DTYPES[dtype], device=device)
        w *= (inputs // groups * max(1, taps / stride)) ** -0.5
        b = torch.randn(outputs, dtype=DTYPES[dtype], device=device)
        post = stages.gelu()
        sluice.prepare(post, x, w, b, *numbers, op="conv_transpose1d")
        return Workload(
            ours=lambda: sluice.conv_transpose1d(x, w, b, *numbers, post=post, schedule=schedule),
            write=lambda out: sluice.conv_transpose1d(x, w, b, *numbers, post=post, schedule=schedule, out=out),
            reference=lambda: F.gelu(F.conv_transpose1d(x.double(), w.double(), b.double(), *numbers)),
            plan=sluice.plan("conv_transpose1d", x, w, b, *numbers, post=post, schedule=schedule),
            traffic=(elements + w.numel()) * x.itemsize,
            matmul_flops=2 * products,
            peers={
                "torch": lambda: F.gelu(F.conv_transpose1d(x, w, b, *numbers)),
                "conv2d_channels_last": _on_images("conv_transpose1d", x, w, b, numbers),
            },
        )

    extra = f" op={output_padding}" * (output_padding > 0) + f" g={groups}" * (groups > 1)
    text = (
        f"{batch}x{inputs}x{length} to {outputs} K={taps} s={stride}{extra} d={dilation} p={padding} {dtype} {layout}"
    )
    params = {"B": batch, "Cin": inputs, "Cout": outputs, "L": length, "K": taps, "stride": stride, "padding": padding}
    params |= {"dilation": dilation, "groups": groups, "dtype": dtype, "layout": layout, "op": "conv_transpose1d"}
    return Problem("conv_transpose1d", text, params | {"fn": "gelu"}, make, ALLOWS_TF32.get(dtype))


def stencil(pick: random.Random) -> Problem | None:
    """Kernels of 3 x 3 to 31 x 31, 2 to 600 MB."""
    dtype, layout = pick.choice(("fp32", "fp16", "bf16")), pick.choice(("cf", "cf", "cf", "cl"))
    size = 2 * round(_log_uniform(pick, 1, 15)) + 1
    elements = _log_uniform(pick, _LEAST_BYTES, _MOST_BYTES) / (2 * DTYPES[dtype].itemsize)
    channels = pick.choice((1, 1, 3, 4, round(_log_uniform(pick, 1, 64))))
    width = max(size, _near(pick, _log_uniform(pick, 16, 4096), 32))
    height = max(size, _near(pick, min(_log_uniform(pick, 16, 4096), elements / channels / width), 32))
    batch = max(1, round(elements / channels / width / height))
    outputs = batch * channels * height * width
    flops, matmul_flops = _toeplitz_or_fourier(outputs, size, size * size, dtype)

    def make(device: torch.device, schedule: str) -> Workload:
        x = _input((batch, channels, height, width), dtype, layout, device)
        kernel = torch.randn(channels, size, size, dtype=DTYPES[dtype], device=device) / size
        return Workload(
            ours=lambda: sluice.filter2d(x, kernel, schedule=schedule),
            write=lambda out: sluice.filter2d(x, kernel, schedule=schedule, out=out),
            reference=lambda: sluice.reference.filter2d(x.double(), kernel.double()),
            plan=sluice.plan("filter2d", x, kernel, schedule=schedule),
            traffic=(2 * outputs + kernel.numel()) * x.itemsize,
            flops=flops,
            matmul_flops=matmul_flops,
            peers={"torch": lambda: F.conv2d(x, kernel[:, None], padding=size // 2, groups=channels)},
        )

    text = f"{batch}x{channels}x{height}x{width} {size}x{size} {dtype} {layout}"
    sizes = {"B": batch, "C": channels, "H": height, "W": width, "K": size}
    return Problem("filter2d", text, {**sizes, "dtype": dtype, "layout": layout, "op": "filter2d"}, make)


FAMILIES: dict[str, Callable[[random.Random], Problem | None]] = {
    "depthwise": depthwise,
    "dense": dense,
    "strided": strided,
    "transposed": transposed,
    "filter2d": stencil,
}


def draw(family: str, seed: int, schedule: str = "auto") -> Case | None:
    """The case of a seed; None if it would be too large or have no result."""
    problem = FAMILIES[family](random.Random(seed))
    if problem is None:
        return None
    name = f"{family} {seed}: {problem.text}"
    auto = schedule == "auto"
    return Case(
        name=name if auto else f"{name} {schedule}",
        params=problem.params,
        make=lambda device: problem.make(device, schedule),
        auto=auto,
        allows_tf32=problem.allows_tf32,
    )


def cases(family: str, first_seed: int, count: int) -> Iterator[Case]:
    """`count` cases, from the first seed on; seeds without a case are skipped."""
    seed = first_seed
    while count > 0:
        if (case := draw(family, seed)) is not None:
            yield case
            count -= 1
        seed += 1
