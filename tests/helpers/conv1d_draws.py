"""Random problems of conv1d, a function for each kind of method."""

from __future__ import annotations

import random
from typing import Any

from dense_problems import Problem


def depthwise(
    shape: tuple[int, int, int], taps: int, padding: int = 0, *, stride: int = 1, multiplier: int = 1, **others: Any
) -> Problem:
    return Problem(shape, shape[1] * multiplier, taps, stride, padding, groups=shape[1], **others)


def size(rng: random.Random, least: float, most: float) -> int:
    """From 2^least to 2^most, each power as likely."""
    return int(2 ** rng.uniform(least, most))


def draw_padding(rng: random.Random, span: int) -> int:
    """`span`: positions from the first tap to the last."""
    return rng.choice([0, (span + 1) // 2, span, rng.randint(0, span + 10)])


def long_rows(rng: random.Random) -> Problem:
    taps, dilation = max(5, size(rng, 2, 9)), rng.choice([1, 1, 1, 2, 3])
    span = (taps - 1) * dilation
    padding = draw_padding(rng, span)
    length = max(size(rng, 3, 13), span + 193 - 2 * padding)
    return depthwise((rng.randint(1, 3), rng.randint(1, 40), length), taps, padding, dilation=dilation)


def long_channels(rng: random.Random) -> Problem:
    taps, dilation = size(rng, 4, 8), rng.choice([1, 1, 1, 2])
    span, channels = (taps - 1) * dilation, rng.choice([16, 31, 32, 33, 64, 96, rng.randint(16, 150)])
    padding = draw_padding(rng, span)
    length = max(size(rng, 3, 12), span + 49 - 2 * padding)
    return depthwise((rng.randint(1, 3), channels, length), taps, padding, dilation=dilation)


def fourier(rng: random.Random) -> Problem:
    taps, multiplier = size(rng, 6, 14), rng.choice([1, 1, 1, 3])
    padding = draw_padding(rng, taps - 1)
    length = max(size(rng, 8, 16), taps + 1 - 2 * padding)
    return depthwise((rng.randint(1, 5), rng.randint(1, 24), length), taps, padding, multiplier=multiplier)


def by_rows(rng: random.Random) -> Problem:
    taps, channels = rng.randint(200, 700), rng.choice([2, 5, 16, 33, 64, rng.randint(2, 300)])
    batch, padding = rng.randint(1, 3), rng.choice([0, rng.randint(1, taps)])
    length = taps + 60_000_000 // (batch * channels * taps) + rng.randint(0, 20)
    return depthwise((batch, channels, length), taps, padding)


def few_outputs(rng: random.Random) -> Problem:
    outputs = rng.randint(1, 4)
    taps, dilation = rng.randint(2, 32 // outputs), rng.choice([1, 1, 2, 5])
    span, batch = (taps - 1) * dilation, rng.randint(1, 5)
    inputs = rng.choice([8, 16, 32, 64, 96, 9, 31, 33, 40, rng.randint(8, 300)])
    more = rng.choice([0, 3, 8 * rng.randint(0, 500), rng.randint(0, 20000)])
    length = -(-16384 // batch) + span + 1 + more
    return Problem((batch, inputs, length), outputs, taps, 1, draw_padding(rng, span), dilation)


def windows(rng: random.Random, taps: int) -> Problem:
    padding, has_bias = draw_padding(rng, taps - 1), rng.random() < 0.5
    length = max(size(rng, 0, 12), taps - 2 * padding, 1)
    channels = rng.choice([2, 3, 14, 33, 64, rng.randint(2, 200)])
    return depthwise((rng.randint(1, 3), channels, length), taps, padding, has_bias=has_bias)


def strided_depthwise(rng: random.Random) -> Problem:
    """Rows that few and many threads share."""
    taps, stride, dilation = rng.randint(1, 24), rng.randint(1, 9), rng.choice([1, 1, 2, 3, 27])
    stride += stride == 1 and dilation == 1
    padding = draw_padding(rng, (taps - 1) * dilation)
    length = max(size(rng, 0, 13), (taps - 1) * dilation + 1 - 2 * padding, 1)
    channels, multiplier = rng.choice([1, 2, 3, 14, 33, rng.randint(2, 100)]), rng.choice([1, 1, 2, 5])
    options = {"dilation": dilation, "has_bias": rng.random() < 0.5}
    shape = (rng.randint(1, 3), channels, length)
    return depthwise(shape, taps, padding, stride=stride, multiplier=multiplier, **options)


def dense(rng: random.Random) -> Problem:
    taps, dilation = size(rng, 0, 5), rng.choice([1, 1, 1, 2, 5])
    span = (taps - 1) * dilation
    shape = (rng.randint(1, 3), size(rng, 0, 9), max(20, size(rng, 0, 12)) + span)
    return Problem(shape, size(rng, 0, 9), taps, 1, draw_padding(rng, span), dilation)


# Counts, input and output channels of groups: more than a k-block's shortest row, part of a word, and one word.
GROUPS = ((3, 48, 48), (9, 4, 8), (4, 8, 8))


def groups(rng: random.Random) -> Problem:
    """Half of them with fewer input channels than a k-block's shortest row; some with a word of output channels."""
    count, taps, dilation = rng.choice([2, 3, 4, 8, 16]), size(rng, 0, 6), rng.choice([1, 1, 2, 5])
    span, stride = (taps - 1) * dilation, rng.choice([1, 1, 1, 2, 3])
    inputs = rng.choice([rng.randint(2, 15), rng.randint(16, 130)])
    outputs = 8 * rng.choice([1, rng.randint(2, 20)])
    shape = (rng.randint(1, 2), count * inputs, stride * rng.randint(16, 2000) + span)
    return Problem(shape, count * outputs, taps, stride, rng.choice([0, span // 2, span]), dilation, count)


def strides(rng: random.Random) -> Problem:
    taps, dilation = size(rng, 0, 5), rng.choice([1, 1, 1, 2, 3, 4, 6])
    span, stride = (taps - 1) * dilation, rng.choice([2, 2, 3, 4, 5, 6, 7, 8, 10, 16])
    length = stride * max(20, size(rng, 0, 11)) + span + rng.randint(0, 9)
    shape = (rng.randint(1, 3), size(rng, 0, 9), length)
    return Problem(shape, size(rng, 0, 9), taps, stride, draw_padding(rng, span), dilation)


def split_k(rng: random.Random) -> Problem:
    """Long sums and few outputs."""
    taps, stride, dilation = rng.randint(1, 40), rng.choice([1, 1, 2, 5]), rng.choice([1, 1, 2])
    shape = rng.randint(1, 3), rng.randint(65, 1500), rng.randint(20, 900) + (taps - 1) * dilation
    return Problem(shape, rng.randint(2, 300), taps, stride, rng.randint(0, taps), dilation)
