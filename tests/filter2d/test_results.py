"""filter2d: F.conv2d's depthwise results for every kernel, layout, dtype, padding and schedule, with chains."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.library import opcheck

import sluice
from common import (
    DTYPES,
    FIXED_DEPTH,
    LAYOUTS,
    SCHEDULES,
    TOLERANCE,
    assert_close,
    contiguous,
    double_chain,
    offset_by_one,
    permuted,
    poisoned,
    relative_error,
    sliced,
)
from images import channels_last, row_slice
from op_checks import ALL_CHECKS, FAST_CHECKS
from rows import naming
from sluice import stages

IMAGES = [*LAYOUTS, channels_last, row_slice]


def schedules(device: str) -> list[str]:
    """All of them on a GPU; the CPU takes the same way for each."""
    return SCHEDULES if device == "cuda" else SCHEDULES[1:2]


def double(kernel):
    return tuple(part.double() for part in kernel) if isinstance(kernel, tuple) else kernel.double()


def expected(x, kernel, bias=None, padding="same", *, pre=None, post=None) -> torch.Tensor:
    """The float64 result, with `pre` rounded to the image's dtype as the op rounds it."""
    x = sluice.reference.transform(x, pre) if pre is not None else x
    return sluice.reference.filter2d(
        x.double(),
        double(kernel),
        None if bias is None else bias.double(),
        padding,
        post=None if post is None else double_chain(post),
        dtype=torch.float64,
    )


# The image's shape, the kernel's size, padding.
CASES = [
    ((2, 3, 40, 72), (3, 3), "same"),
    ((1, 2, 33, 131), (5, 5), "same"),
    ((2, 2, 37, 61), (4, 2), "same"),
    ((1, 1, 70, 300), (7, 11), "valid"),
    ((3, 5, 9, 8), (3, 3), (2, 0)),
    ((1, 2, 45, 50), (31, 31), "same"),
    ((4, 3, 31, 70), (31, 30), "valid"),
    ((2, 2, 1, 1), (3, 5), "same"),
    ((1, 2, 20, 515), (1, 9), (0, 4)),
    ((1, 2, 150, 3), (8, 1), (13, 1)),
    ((2, 4, 6, 7), (3, 3), (9, 20)),
]


@pytest.mark.parametrize("layout", IMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            shape, (height, width), padding = case
            x = layout(torch.randn(shape, device=device, dtype=dtype))
            w = torch.randn(shape[1], height, width, device=device, dtype=dtype) / (height * width) ** 0.5
            b = torch.randn(shape[1], device=device, dtype=dtype)
            wanted = expected(x, w, b, padding)
            factor = 2 if device == "cpu" and height * width > 500 else 1  # so many products are summed by torch there
            for schedule in schedules(device):
                result = poisoned(x, wanted.shape, layout)
                assert sluice.filter2d(x, w, b, padding, out=result, schedule=schedule) is result
                assert_close(result, wanted, factor=factor)


@pytest.mark.parametrize("layout", IMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_separable(device: str, dtype: torch.dtype, layout) -> None:
    for case in CASES:
        with naming(case):
            shape, (height, width), padding = case
            x = layout(torch.randn(shape, device=device, dtype=dtype))
            column = torch.randn(shape[1], height, device=device, dtype=dtype) / height**0.5
            row = torch.randn(shape[1], width, device=device, dtype=dtype) / width**0.5
            wanted = expected(x, (column, row), None, padding)
            for schedule in schedules(device):
                result = poisoned(x, wanted.shape, layout)
                sluice.filter2d(x, (column, row), padding=padding, out=result, schedule=schedule)
                assert_close(result, wanted)


@pytest.mark.parametrize("size", [(3, 3), (5, 5), (4, 2), (1, 1), (2, 7)], ids=str)
def test_equals_conv2d(device: str, size) -> None:
    for padding in ("same", "valid", (1, 2)):
        with naming(padding):
            x, w = torch.randn(2, 3, 20, 30, device=device), torch.randn(3, *size, device=device)
            b = torch.randn(3, device=device)
            wanted = F.conv2d(x.double(), w.double()[:, None], b.double(), padding=padding, groups=3)
            assert_close(sluice.filter2d(x, w, b, padding), wanted)
            assert_close(sluice.reference.filter2d(x.double(), w.double(), b.double(), padding), wanted)
            outer = (w[..., 0], w[:, 0])
            wanted = F.conv2d(
                x.double(), (outer[0][..., None] * outer[1][:, None]).double()[:, None], padding=padding, groups=3
            )
            assert_close(sluice.filter2d(x, outer, padding=padding), wanted)


# Shapes whose rows are whole words, which have kernels of their own at 3 x 3 and 5 x 5: few and many rows, one word and
# more than a block of them, planes of less than a block, kernels higher than the image, padding that keeps the width
# and padding that does not.
ALIGNED_CASES = [
    ((2, 3, 33, 64), "same"),
    ((1, 2, 75, 240), "same"),
    ((3, 1, 145, 16), "same"),
    ((2, 2, 2, 1200), "same"),
    ((5, 7, 1, 8), "same"),
    ((20, 30, 16, 32), "same"),
    ((2, 2, 40, 240), (1, 1)),
    ((2, 2, 40, 240), (2, 2)),
    ((2, 2, 40, 240), (0, 2)),
    ((1, 3, 9, 64), (4, 2)),
    ((1, 3, 9, 64), (2, 1)),
    ((1, 3, 9, 64), (5, 2)),
]


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_whole_words(device: str, dtype: torch.dtype, size: int) -> None:
    for case in ALIGNED_CASES:
        with naming(case):
            shape, padding = case
            x = torch.randn(shape, device=device, dtype=dtype)
            w = torch.randn(shape[1], size, size, device=device, dtype=dtype) / size
            b = torch.randn(shape[1], device=device, dtype=dtype)
            wanted = expected(x, w, b, padding)
            result = poisoned(x, wanted.shape)
            sluice.filter2d(x, w, b, padding, out=result)
            assert_close(result, wanted)
            if device == "cuda":  # another layout of the image takes other kernels, to the same bits
                assert torch.equal(sluice.filter2d(row_slice(x), w, b, padding), result)
                assert torch.equal(sluice.filter2d(x, w, b, padding, schedule="sync"), result)
            # Taps that are not contiguous, and one kernel for all channels.
            assert_close(sluice.filter2d(x, w.mT.contiguous().mT, b, padding), wanted)
            assert_close(sluice.filter2d(x, w[0], None, padding), expected(x, w[0], None, padding))
            # Rows and planes apart, in the image and in the result.
            wide = x.new_zeros(*shape[:-2], shape[-2] + 3, shape[-1] + 16)[..., 2:-1, 8:-8]
            wide.copy_(x)
            frame = poisoned(x, (*wanted.shape[:-2], wanted.shape[-2] + 2, wanted.shape[-1] + 16))
            inner = frame[..., 1:-1, 8:-8]
            sluice.filter2d(wide, w, b, padding, out=inner)
            assert_close(inner, wanted)
            if device == "cuda":
                assert torch.equal(inner, result)
            inner.fill_(float("nan"))
            assert frame.isnan().all()  # nothing beside the result is written


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 75, 240), (3, 2, 7, 16)], ids=str)
def test_chains_on_rows_of_whole_words(device: str, shape, dtype: torch.dtype, size: int) -> None:
    x = torch.randn(shape, device=device, dtype=dtype)
    w = torch.randn(shape[1], size, size, device=device, dtype=dtype) / size
    b = torch.randn(shape[1], device=device, dtype=dtype)
    numbers = stages.scale(0.5) | stages.silu()
    others = (
        torch.randn(shape, device=device),
        torch.randn(shape[1], 1, 1, device=device),
        torch.randn(shape[-1], device=device, dtype=dtype),
        torch.randn(shape[-2], 1, device=device, dtype=torch.float16),
        row_slice(torch.randn(shape, device=device, dtype=dtype)),
    )
    for post in (numbers, *(numbers | stages.add(other) for other in others)):
        wanted = expected(x, w, b, post=post)
        # On a GPU each result dtype has kernels of its own.
        few = device == "cpu" and post is not numbers
        for result in (None, torch.float16) if few else (None, *DTYPES):
            given = sluice.filter2d(x, w, b, post=post, dtype=result)
            assert given.dtype == (result or dtype)
            lowest = TOLERANCE[torch.float32] if given.dtype == torch.float64 != dtype else 0
            assert relative_error(given, wanted) <= max(2 * TOLERANCE[given.dtype], lowest * 2)
    for result in (torch.float32, torch.float16, torch.bfloat16):
        assert_close(sluice.filter2d(x, w, b, dtype=result), expected(x, w, b))
    # In place of an operand.
    out = x.clone()
    sluice.filter2d(x, w, b, post=stages.add(out), out=out)
    assert_close(out, expected(x, w, b, post=stages.add(x)))


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("layout", IMAGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chains(device: str, dtype: torch.dtype, layout, separable: bool) -> None:
    x = layout(torch.randn(2, 3, 35, 70, device=device, dtype=dtype))
    for size in ((3, 3), (6, 7)):
        column, row = (torch.randn(3, n, device=device, dtype=dtype) for n in size)
        kernel = (column, row) if separable else column[..., None] * row[:, None]
        # shift(1) shows whether padding is zero after `pre`, as it must be.
        pre = stages.shift(1.0) | stages.mul(torch.randn(3, 1, 1, device=device))
        pre |= stages.snake(torch.rand(3, 1, 1, device=device))
        other = layout(torch.randn(2, 3, 35, 70, device=device, dtype=dtype))
        post = stages.silu() | stages.add(other) | stages.mul(torch.randn(70, device=device))
        for chains in ({"pre": pre}, {"post": post}, {"post": stages.scale(0.5)}, {"pre": pre, "post": post}):
            wanted = expected(x, kernel, **chains)
            for schedule in schedules(device):
                assert_close(sluice.filter2d(x, kernel, **chains, schedule=schedule), wanted, factor=2)


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("layout", [contiguous, row_slice], ids=lambda f: f.__name__)
def test_every_schedule_and_depth_gives_the_same_bits(device: str, schedule: str, layout, separable: bool) -> None:
    x = layout(torch.randn(3, 4, 200, 520, device=device, dtype=torch.bfloat16))
    for size in (3, 5, 10):
        vector = torch.randn(4, size, device=device, dtype=torch.bfloat16)
        kernel = (vector, vector) if separable else vector[..., None] * vector[:, None]
        options = {"pre": stages.relu() if size == 10 else None, "post": stages.silu()}
        wanted = sluice.filter2d(x, kernel, **options, schedule="direct")
        for depth in [FIXED_DEPTH[schedule]] if schedule in FIXED_DEPTH else [1, 2, 3]:
            assert torch.equal(sluice.filter2d(x, kernel, **options, schedule=schedule, depth=depth), wanted)


def test_alignment_changes_no_bits(device: str) -> None:
    x, w = torch.randn(2, 3, 50, 141, device=device), torch.randn(3, 5, 5, device=device)
    wanted = sluice.filter2d(x, w)
    for layout in (offset_by_one, row_slice, sliced, permuted):
        if device == "cpu" and layout is not offset_by_one:
            continue  # aten takes another way for each layout
        assert torch.equal(sluice.filter2d(layout(x), w), wanted)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_number_of_batch_dimensions(device: str, schedule: str) -> None:
    w, shared = torch.randn(3, 3, 3, device=device), torch.randn(4, 5, device=device)
    base = torch.randn(5, 2, 4, 3, 16, 24, device=device)
    for x in (
        base[0, 0, 0],
        base[0, 0],
        base[0],
        base,
        base.transpose(0, 2),
        base[:, :1, ::2],
        base.expand(2, *base.shape),
    ):
        assert_close(sluice.filter2d(x, w, schedule=schedule), expected(x, w))
        assert_close(sluice.filter2d(x, shared, schedule=schedule), expected(x, shared))
    # Operands that keep the batch dimensions from merging.
    post = stages.add(torch.randn(5, 1, 4, 1, 1, 1, device=device)) | stages.mul(
        torch.randn(2, 1, 3, 1, 24, device=device)
    )
    assert_close(sluice.filter2d(base, w, post=post, schedule=schedule), expected(base, w, post=post), factor=2)
    x = base[0, 0, 0, 0]
    assert_close(sluice.filter2d(x, shared, schedule=schedule), expected(x, shared))
    assert_close(
        sluice.filter2d(x, (shared[:, 0], shared[0]), schedule=schedule), expected(x, (shared[:, 0], shared[0]))
    )


def test_a_kernel_for_all_channels(device: str) -> None:
    x, w, b = torch.randn(2, 3, 20, 30, device=device), torch.randn(3, 3, device=device), torch.randn(1, device=device)
    each = sluice.filter2d(x, w.expand(3, 3, 3), b.expand(3))
    assert_close(sluice.filter2d(x, w, b), each.double())
    assert_close(sluice.filter2d(x, w.T, b), expected(x, w.T, b))


@pytest.mark.parametrize("layout", [contiguous, channels_last, row_slice], ids=lambda f: f.__name__)
def test_uint8_images_give_float32(device: str, layout) -> None:
    x = layout(torch.randint(0, 256, (2, 3, 30, 50), device=device, dtype=torch.uint8))
    w = torch.randn(3, 5, 4, device=device)
    result = sluice.filter2d(x, w)
    assert result.dtype == torch.float32
    assert_close(result, expected(x, w))
    pre = stages.scale(1 / 255) | stages.shift(-0.5)
    assert_close(sluice.filter2d(x, w, pre=pre), expected(x.float(), w, pre=pre))
    half = sluice.filter2d(x, w, dtype=torch.float16)
    assert half.dtype == torch.float16
    assert_close(half, expected(x, w))
    out = torch.empty_like(result)
    assert torch.equal(sluice.filter2d(x, w, out=out), result)


@pytest.mark.parametrize("layout", IMAGES, ids=lambda f: f.__name__)
def test_result_layout(device: str, layout) -> None:
    x = layout(torch.randn(2, 6, 20, 30, device=device))
    result = sluice.filter2d(x, torch.randn(3, 3, device=device), padding="valid")
    assert result.stride() == (
        (18 * 28 * 6, 1, 28 * 6, 6) if layout is channels_last else (6 * 18 * 28, 18 * 28, 28, 1)
    )


def test_result_dtype(device: str) -> None:
    x, w = torch.randn(2, 4, 30, 20, device=device).half(), torch.randn(4, 3, 3, device=device).half()
    wanted = expected(x, w)
    for options in ({"dtype": torch.float32}, {"post": stages.cast(torch.float32)}):
        result = sluice.filter2d(x, w, **options)
        assert result.dtype == torch.float32
        assert_close(result, wanted)  # float32 sums are not rounded to half on the way


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_taps_ignore_infinities_outside_their_window(device: str, size: int) -> None:
    x = torch.ones(1, 2, 40, 90, device=device)
    x[:, :, 20, 50] = float("inf")
    reach = size // 2
    wanted = torch.zeros(40, 90, dtype=torch.bool)
    wanted[20 - reach : 21 + reach, 50 - reach : 51 + reach] = True
    for schedule in SCHEDULES:
        for kernel in (torch.ones(size, size, device=device), (torch.ones(size, device=device),) * 2):
            result = sluice.filter2d(x, kernel, schedule=schedule)
            assert torch.equal(result[0, 1].isinf().cpu(), wanted)
            assert not result.isnan().any()


def test_autocast_casts_nothing(device: str) -> None:
    x, w = torch.randn(2, 4, 30, 20, device=device), torch.randn(4, 3, 3, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert sluice.filter2d(x, w).dtype == torch.float32


def test_cpp_stages_run_by_their_references_on_the_cpu() -> None:
    soft = stages.cpp("x / (1 + a * fabsf(x))", name="soft", a=0.5, reference=lambda x, a: x / (1 + a * x.abs()))
    x, w = torch.randn(2, 3, 20, 30), torch.randn(3, 3, 3)
    for image in (x, (x.abs() * 50).to(torch.uint8)):
        floating = image.float()
        before = sluice.transform(floating, soft)
        wanted = sluice.transform(sluice.filter2d(before, w), stages.relu() | soft)
        result = sluice.filter2d(image, w, pre=soft, post=stages.relu() | soft)
        torch.testing.assert_close(result, wanted)


# contracts/test_fakes.py traces filter2d in every kind of layout, so one of them traces all arguments here.
@pytest.mark.parametrize(
    ("layout", "tests"),
    [(contiguous, ALL_CHECKS), *((layout, FAST_CHECKS) for layout in (channels_last, row_slice, sliced))],
)
def test_opcheck(device: str, layout, tests) -> None:
    x = layout(torch.randn(2, 3, 12, 20, device=device))
    w, b = torch.randn(3, 3, 4, device=device), torch.randn(3, device=device)
    y = torch.randn(3, 1, 1, device=device)
    op = torch.ops.sluice.filter2d.default
    opcheck(op, (x, w), {"post": "silu"}, test_utils=tests)
    opcheck(
        op,
        (x, w, b, [1, 2]),
        {"pre": "mul($0)", "pre_operands": [y], "post": "add($0)|cast(bfloat16)", "post_operands": [y]},
        test_utils=tests,
    )
    opcheck(op, (x[0, 0], w[0, 0], None, [0, 0]), {"row_kernel": w[0, 1]}, test_utils=tests)
    opcheck(op, (x.abs().to(torch.uint8), w), test_utils=tests)
    out = torch.empty_like(sluice.filter2d(x, w))
    opcheck(torch.ops.sluice.filter2d_out.default, (x, w), {"out": out}, test_utils=tests)
