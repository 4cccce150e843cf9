"""filter2d's windows: stride, dilation, padding modes and images of bytes, against F.pad and F.conv2d in float64."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

import sluice
from common import DTYPES, LAYOUTS, assert_close, contiguous, double_chain
from images import MODES, channels_last, row_slice
from op_checks import FAST_CHECKS
from sluice import stages
from sluice.plan import H200


def expected(x: torch.Tensor, kernel, bias=None, padding="same", *, pre=None, post=None, **windows) -> torch.Tensor:
    """The float64 result of F.pad and F.conv2d, with `pre` rounded as the op rounds it."""
    x = x.float() if x.dtype == torch.uint8 else x
    x = (sluice.reference.transform(x, pre) if pre is not None else x).double()
    taps = kernel[0][..., None] * kernel[1][..., None, :] if isinstance(kernel, tuple) else kernel
    if isinstance(kernel, tuple):
        taps = kernel[0].double()[..., None] * kernel[1].double()[..., None, :]
    stride, dilation, mode = (windows.get(n, d) for n, d in (("stride", 1), ("dilation", 1), ("padding_mode", "zeros")))
    spread = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    sides = []
    for d in (1, 0):
        total = spread[d] * (taps.shape[d - 2] - 1) if padding == "same" else 0
        sides += [total // 2, total - total // 2] if isinstance(padding, str) else [padding[d]] * 2
    channels = x.shape[1]
    padded = F.pad(x, sides, mode="constant" if mode == "zeros" else mode)
    taps = taps.double().expand(channels, *taps.shape[-2:])[:, None]
    y = F.conv2d(padded, taps, None if bias is None else bias.double().expand(channels), stride, 0, dilation, channels)
    return y if post is None else sluice.reference.transform(y, double_chain(post), dtype=torch.float64)


def random_problem(draw: random.Random, device: str, dtype: torch.dtype) -> tuple[torch.Tensor, Any, Any, dict]:
    """An image, a kernel, padding and windows that fit, of any size and layout."""
    while True:
        shape = (draw.choice([1, 2]), draw.choice([1, 2, 3, 17]), draw.randint(1, 40), draw.choice([3, 20, 70, 300]))
        height, width = draw.choice([(1, 1), (3, 3), (5, 5), (2, 4), (7, 3), (1, 9), (6, 6)])
        stride = (draw.choice([1, 1, 2, 3]), draw.choice([1, 1, 2, 3, 7]))
        dilation = (draw.choice([1, 1, 2, 4]), draw.choice([1, 1, 2, 3]))
        mode = draw.choice(MODES)
        padding: Any = (draw.randint(0, 5), draw.randint(0, 5))
        if stride == (1, 1):
            padding = draw.choice(["same", "valid", padding])
        windows = (dilation[0] * (height - 1) + 1, dilation[1] * (width - 1) + 1)
        added = windows if padding == "same" else (0, 0) if padding == "valid" else padding
        most = min(shape[2], shape[3]) - 1
        if mode in ("reflect", "circular") and max(added) > most:
            continue
        around = (0, 0) if isinstance(padding, str) else padding
        room = [extent + 2 * pad for extent, pad in zip(shape[2:], around, strict=True)]
        if padding != "same" and (room[0] < windows[0] or room[1] < windows[1]):
            continue
        break
    if dtype == torch.uint8:
        x = torch.randint(0, 256, shape, device=device, dtype=dtype)
    else:
        x = torch.randn(shape, device=device, dtype=dtype)
    x = draw.choice([*LAYOUTS, channels_last, row_slice])(x)
    computed = torch.float32 if dtype == torch.uint8 else dtype
    kernel: Any = torch.randn(shape[1], height, width, device=device, dtype=computed) / (height * width) ** 0.5
    if draw.random() < 0.3:
        kernel = (kernel[..., 0].contiguous(), kernel[:, 0])
    options = {"stride": stride, "dilation": dilation, "padding_mode": mode}
    return x, kernel, padding, options


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8], ids=str)
def test_windows_are_those_of_pad_and_conv2d(device: str, dtype: torch.dtype) -> None:
    draw = random.Random(torch.initial_seed())
    for _ in range(60):
        x, kernel, padding, options = random_problem(draw, device, dtype)
        computed = torch.float32 if dtype == torch.uint8 else dtype
        bias = torch.randn(x.shape[1], device=device, dtype=computed)
        wanted = expected(x, kernel, bias, padding, **options)
        found = sluice.filter2d(x, kernel, bias, padding, **options)
        message = f"{tuple(x.shape)} {x.stride()} {padding} {options}"
        assert (found.shape, found.dtype) == (wanted.shape, computed), message
        try:
            assert_close(found, wanted, factor=2)
        except AssertionError as error:
            raise AssertionError(message) from error
        result = torch.full_like(found, float("nan"))
        sluice.filter2d(x, kernel, bias, padding, **options, out=result)
        assert torch.equal(result, found), message


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8], ids=str)
def test_chains_before_and_behind_windows(device: str, dtype: torch.dtype, mode: str) -> None:
    x = torch.randint(0, 9, (2, 3, 31, 70), device=device).to(dtype)
    computed = torch.float32 if dtype == torch.uint8 else dtype
    kernel = torch.randn(3, 3, 5, device=device, dtype=computed)
    before = stages.scale(0.5) | stages.shift(1.0) | stages.mul(torch.randn(3, 1, 70, device=device))
    for stride, dilation in ((1, 1), ((2, 3), 1), (1, (2, 1))):
        options = {"stride": stride, "dilation": dilation, "padding_mode": mode}
        plain = expected(x, kernel, None, (2, 3), **options)
        behind = stages.silu() | stages.add(torch.randn(plain.shape, device=device))
        for chains in ({"pre": before}, {"post": behind}, {"pre": before, "post": behind}):
            wanted = expected(x, kernel, None, (2, 3), **options, **chains)
            assert_close(sluice.filter2d(x, kernel, None, (2, 3), **options, **chains), wanted, factor=2)
        half = sluice.filter2d(x, kernel, None, (2, 3), **options, dtype=torch.float16)
        assert half.dtype == torch.float16
        assert_close(half, plain)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8], ids=str)
@pytest.mark.parametrize("side", [3, 5])
def test_squares_on_rows_that_lie_anyhow(device: str, side: int, dtype: torch.dtype, mode: str) -> None:
    computed = torch.float32 if dtype == torch.uint8 else dtype
    for shape, padding in (((2, 3, 65, 131), "same"), ((1, 2, 80, 319), (1, 2)), ((1, 1, 150, 96), (2, 0))):
        x = torch.randint(-50, 50, shape, device=device).to(dtype)
        kernel = torch.randn(shape[1], side, side, device=device, dtype=computed) / side
        bias = torch.randn(shape[1], device=device, dtype=computed)
        post = stages.add(torch.randn(shape[-1] + (side - 1) * 4, device=device))
        wanted = expected(x, kernel, bias, padding, padding_mode=mode)
        for layout in (contiguous, row_slice, lambda t: row_slice(row_slice(t))):
            image = layout(x)
            frame = torch.full((*wanted.shape[:-2], wanted.shape[-2], wanted.shape[-1] + 3), float("nan"))
            frame = frame.to(device=device, dtype=computed)
            result = frame[..., 1:-2]
            sluice.filter2d(image, kernel, bias, padding, padding_mode=mode, out=result)
            assert_close(result, wanted)
            result.fill_(float("nan"))
            assert frame.isnan().all()  # nothing beside the result is written
            assert_close(sluice.filter2d(image, kernel, bias, padding, padding_mode=mode), wanted)
            other = post.operands[0][: wanted.shape[-1]]
            chained = sluice.filter2d(image, kernel, bias, padding, padding_mode=mode, post=stages.add(other))
            assert_close(chained, wanted + other.double(), factor=2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("side", [3, 5, 7])
def test_what_is_not_finite_stays_in_its_window(device: str, side: int, mode: str) -> None:
    x = torch.ones(1, 2, 75, 131, device=device, dtype=torch.float16)
    places = [(0, 0), (30, 60), (74, 130), (40, 0), (0, 77)]
    for row, column in places:
        x[0, :, row, column] = float("inf")
    kernel = torch.ones(side, side, device=device, dtype=torch.float16)
    wanted = expected(x, kernel, padding_mode=mode).isinf().cpu()
    result = sluice.filter2d(x, kernel, padding_mode=mode)
    assert torch.equal(result.isinf().cpu(), wanted)
    assert not result.isnan().any()


def test_refusals() -> None:
    x, w = torch.randn(1, 2, 6, 8), torch.randn(2, 3, 3)

    def refused(words: str, *args: Any, error: type[Exception] = ValueError, **options: Any) -> None:
        with pytest.raises(error, match=words):
            sluice.filter2d(x, w, None, *args, **options)

    refused(r"filter2d: padding='same' must have stride 1, got \(2, 1\)", stride=(2, 1))
    refused("filter2d: stride must be at least 1 and less than 2\\^31, got 0", (1, 1), stride=0)
    refused("filter2d: dilation must be at least 1 and less than 2\\^31, got -1", dilation=(1, -1))
    refused("filter2d: stride must be one number or two, got 3", (1, 1), stride=(1, 1, 1))
    refused("filter2d: stride must be an int, got float", (1, 1), stride=1.5, error=TypeError)
    refused(
        "filter2d: padding_mode must be 'zeros', 'replicate', 'reflect' or 'circular', got 'mirror'",
        padding_mode="mirror",
    )
    refused("filter2d: padding_mode must be a string, got int", padding_mode=1, error=TypeError)
    refused(
        "filter2d: padding must be at most 5 rows with padding_mode='reflect' for an image of 6, got 6",
        (6, 1),
        padding_mode="reflect",
    )
    refused(
        "filter2d: padding must be at most 8 columns with padding_mode='circular' for an image of 8, got 9",
        (0, 9),
        padding_mode="circular",
    )
    refused("filter2d: image must be at least 9 x 3 with padding, the kernel's size", (1, 1), dilation=(4, 1))
    for op, arguments, words in (
        (torch.ops.sluice.filter2d, {"stride": [1]}, "stride must be two numbers, got 1"),
        (torch.ops.sluice.filter2d, {"dilation": [1, 2, 3]}, "dilation must be two numbers, got 3"),
    ):
        with pytest.raises(RuntimeError, match=words):
            op(x, w, **arguments)


def test_rings_say_why_they_take_no_windows() -> None:
    x, w = torch.empty(1, 2, 200, 300, device="meta"), torch.empty(2, 7, 7, device="meta")
    for options, words in (
        ({"stride": 2, "padding": (1, 1)}, "stride and dilation must be 1"),
        ({"dilation": 2}, "stride and dilation must be 1"),
        ({"padding_mode": "reflect"}, "padding_mode must be 'zeros'"),
    ):
        assert sluice.plan("filter2d", x, w, device=H200, **options).schedule == "direct"
        with pytest.raises(ValueError, match=words):
            sluice.plan("filter2d", x, w, device=H200, schedule="two_stage", **options)
    pixels = torch.empty(1, 2, 200, 300, device="meta", dtype=torch.uint8)
    assert sluice.plan("filter2d", pixels, w, device=H200, schedule="two_stage").kernel == "staged"  # kernel of floats


def test_plans_name_the_kernel_for_windows() -> None:
    def kernel(
        width: int, side: int = 3, dtype: torch.dtype = torch.float16, dtype_of_taps: Any = None, **options: Any
    ) -> str:
        x = torch.empty(2, 3, 1080, width, device="meta", dtype=dtype)
        w = torch.empty(3, side, side, device="meta", dtype=dtype_of_taps or dtype)
        return sluice.plan("filter2d", x, w, device=H200, **options).kernel

    assert kernel(1920) == "aligned3"
    assert kernel(1919) == "unaligned3"
    assert kernel(1919, 5) == "columns5"
    assert kernel(1919, 7) == "toeplitz"
    assert kernel(1919, 7, dtype=torch.float32) == "columns7"
    assert kernel(1919, 6) == "tiled"
    assert kernel(1919, 2) == "patches"
    assert kernel(1919, dtype=torch.float64) == "square3"
    assert kernel(40) == "aligned3"
    assert kernel(41) == "columns3"
    assert kernel(1920, padding_mode="reflect") == "unaligned3"
    assert kernel(1920, 7, padding_mode="reflect") == "toeplitz"
    assert kernel(1920, 6, padding_mode="reflect") == "tiled"
    assert kernel(1920, 2, padding_mode="reflect") == "sampled"
    assert kernel(1920, stride=2, padding=(1, 1)) == "sampled"
    assert kernel(1919, pre=stages.relu(), schedule="direct") == "columns3"
    assert kernel(1920, pre=stages.relu(), schedule="direct") == "patches"
    taps = {"dtype": torch.uint8, "dtype_of_taps": torch.float32}
    assert kernel(1920, **taps) == "bytes_unaligned3"
    assert kernel(1920, pre=stages.relu(), **taps) == "bytes_columns3"
    assert kernel(1920, 5, dilation=2, **taps) == "bytes_sampled"
    assert kernel(1920, 9, **taps) == "columns9"  # the kernel of floats


def test_any_number_of_batch_dimensions_of_bytes(device: str) -> None:
    base = torch.randint(0, 256, (5, 2, 4, 3, 16, 24), device=device, dtype=torch.uint8)
    w = torch.randn(3, 3, 3, device=device)
    for x in (base[0, 0, 0], base[0], base, base.transpose(0, 2), base[:, :1, ::2]):
        wanted = expected(x.reshape(-1, 3, 16, 24), w, padding_mode="circular")
        assert_close(sluice.filter2d(x, w, padding_mode="circular").reshape(wanted.shape), wanted)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_in_and_nothing_out(device: str, mode: str) -> None:
    x, w = torch.empty(0, 3, 8, 9, device=device), torch.randn(3, 3, 3, device=device)
    assert sluice.filter2d(x, w, None, (1, 1), stride=2, padding_mode=mode).shape == (0, 3, 4, 5)


def test_opcheck(device: str) -> None:
    x, w = torch.randn(2, 3, 12, 20, device=device), torch.randn(3, 3, 4, device=device)
    op = torch.ops.sluice.filter2d.default
    options = {"stride": [2, 1], "dilation": [1, 2], "padding_mode": "reflect"}
    opcheck(op, (x, w, None, [1, 2]), options)
    opcheck(op, (channels_last(x), w, None, [1, 2]), {**options, "post": "silu"}, test_utils=FAST_CHECKS)
    opcheck(op, (x.abs().to(torch.uint8), w, None, [0, 1]), {"padding_mode": "circular"}, test_utils=FAST_CHECKS)
    out = torch.empty_like(torch.ops.sluice.filter2d(x, w, None, [1, 2], **options))
    opcheck(torch.ops.sluice.filter2d_out.default, (x, w, None, [1, 2]), {**options, "out": out})


def test_windows_compile(device: str) -> None:
    x, w = torch.randn(2, 3, 20, 31, device=device), torch.randn(3, 3, 3, device=device)

    def call(x: torch.Tensor) -> torch.Tensor:
        return sluice.filter2d(x, w, padding=(1, 1), stride=(2, 1), dilation=1, padding_mode="reflect")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (20, 33):
        image = x[:, :, :1].expand(2, 3, rows, 31)
        torch.testing.assert_close(compiled(image), call(image))
