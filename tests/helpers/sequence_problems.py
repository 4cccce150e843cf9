"""causal_conv1d beside its definition: how one call is checked, and calls with any of its options."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import torch

import sluice
from common import (
    DTYPES,
    contiguous,
    double_chain,
    offset_by_one,
    permuted,
    poisoned_like,
    sliced,
)
from sluice import stages
from update_problems import STATE_LAYOUTS, assert_nothing_around_is_written, bits, twin

# Tolerances of an element: relative, for rounding to its dtype; absolute, for sums of numbers near 1.
RELATIVE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-13}
ABSOLUTE = {torch.float64: 1e-13}
EVERY_SUM = 2e-5


def projected(x: torch.Tensor) -> torch.Tensor:
    """Part of a wider projection: each token is a row of an odd number of channels, with NaN around x's."""
    channels = x.shape[-2]
    wide = x.new_full((*x.shape[:-2], x.shape[-1], 2 * channels + 7), float("nan"))
    return wide[..., 5 : 5 + channels].copy_(x.mT).mT


def expanded(x: torch.Tensor) -> torch.Tensor:
    """The first channel expanded to all channels."""
    return x[..., :1, :].expand(x.shape)


X_LAYOUTS = [contiguous, permuted, projected, sliced, offset_by_one]


def strided(index: torch.Tensor) -> torch.Tensor:
    """Every second element of a wider tensor."""
    return torch.stack([index, index], dim=-1)[..., 0]


def poisoned_twin(x: torch.Tensor) -> torch.Tensor:
    """An output with x's strides, unless elements would share memory."""
    return twin(poisoned_like(x) if 0 in x.stride() else x).fill_(float("nan"))


def assert_same_numbers(a: torch.Tensor, b: torch.Tensor) -> None:
    """Asserts the same bits, except where both are NaN."""
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    is_nan = a.isnan() & b.isnan()
    assert torch.equal(bits(a.masked_fill(is_nan, 0)), bits(b.masked_fill(is_nan, 0)))


def assert_each_close(result: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compares each element, so that one sequence's norm does not hide another's errors."""
    absolute = ABSOLUTE.get(result.dtype, EVERY_SUM)
    torch.testing.assert_close(result.double(), wanted, rtol=RELATIVE[result.dtype], atol=absolute, equal_nan=True)


def numbers_that_are_none(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every encoding of NaN."""
    digits = -int(math.log2(torch.finfo(dtype).eps))
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    payload = torch.randint(1, 2**digits, shape, device=device).to(whole)
    return (torch.full(shape, float("inf"), dtype=dtype, device=device).view(whole) | payload).view(dtype)


def strides_of_result(x: torch.Tensor) -> tuple[int, ...]:
    *_, channels, length = x.shape
    if x.stride(-2) == 1 and channels > 1 and length > 1 and x.stride(-1) >= channels:
        return torch.empty((*x.shape[:-2], length, channels), device="meta").mT.stride()
    return torch.empty(x.shape, device="meta").stride()


def expected(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    initial_states: torch.Tensor | None = None,
    pre: sluice.Chain | None = None,
    residual: torch.Tensor | None = None,
    post: sluice.Chain | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The result in float64; the states bit by bit, and in float64, which are the cache or the final states."""

    def double(t: torch.Tensor | None) -> torch.Tensor | None:
        return None if t is None else t.double()

    reference = sluice.reference.causal_conv1d
    tokens = x if pre is None else sluice.reference.transform(x, pre, dtype=x.dtype)
    chains = {"residual": double(residual), "post": None if post is None else double_chain(post)}
    result, exact = reference(
        tokens.double(), weight.double(), double(bias), activation=activation, **chains,
        **(options | {"initial_states": double(initial_states), "state_cache": double(options.get("state_cache"))}),
    )  # fmt: skip
    states = reference(tokens, weight, initial_states=initial_states, **options)[1]
    return result, states, exact


def check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **options: Any) -> torch.Tensor:
    """The op against its definition, with every kind of output; returns the fresh result.

    The arguments stay as they are: a `state_cache` is changed in copies, and `final_states_out` is an example of
    strides and dtype.
    """
    example = options.pop("final_states_out", None)
    given = [t for t in (x, weight, bias, *options.values()) if isinstance(t, torch.Tensor)]
    copies, out = [t.clone() for t in given], poisoned_twin(x)
    wanted, states, exact = expected(x, weight, bias, **options)
    if "state_cache" in options:
        fresh = _check_cache(x, weight, bias, states, **options)
        _check_cache(x, weight, bias, states, out=out, **options)
    else:
        fresh = sluice.causal_conv1d(x, weight, bias, **options)
        result, final = sluice.causal_conv1d(x, weight, bias, return_final_states=True, out=out, **options)
        assert result is out
        assert final.is_contiguous()
        assert_same_numbers(final, states)
        into = poisoned_twin(states if example is None else example)
        version = into._version
        again, returned = sluice.causal_conv1d(x, weight, bias, final_states_out=into, **options)
        assert returned is into
        assert into._version > version
        assert_same_numbers(into, states if into.dtype == states.dtype else exact.to(into.dtype))
        assert_nothing_around_is_written(into)
        torch.testing.assert_close(again, fresh, rtol=0, atol=0, equal_nan=True)
    assert fresh.dtype == x.dtype
    assert fresh.stride() == strides_of_result(x)
    assert_each_close(fresh, wanted)
    assert not fresh[wanted == 0].any()
    torch.testing.assert_close(out, fresh, rtol=0, atol=0, equal_nan=True)
    assert_nothing_around_is_written(out)
    for tensor, copy in zip(given, copies, strict=True):
        assert torch.equal(bits(tensor), bits(copy))
    return fresh


def _check_cache(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, wanted: torch.Tensor, **options: Any
) -> torch.Tensor:
    changed = twin(options["state_cache"])
    version = changed._version
    result = sluice.causal_conv1d(x, weight, bias, **(options | {"state_cache": changed}))
    assert changed._version > version
    assert_same_numbers(changed, wanted)
    assert_nothing_around_is_written(changed)
    assert result is options.get("out", result)
    return result


def counted(x: torch.Tensor, weight: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
    """Where the result is no 0 of a token without a sequence, or of a sequence without a slot."""
    names = ("seq_idx", "cu_seqlens", "state_cache", "cache_indices", "pad_slot_id", "null_slot_id", "dilation")
    given = {name: options[name] for name in names if name in options}
    ones, _ = sluice.reference.causal_conv1d(
        torch.zeros_like(x), torch.zeros_like(weight), post=stages.shift(1.0), **given
    )
    return ones != 0


class Draw(random.Random):
    """Problems with any of the op's options, from one seed."""

    device = "cpu"
    dtype = torch.float32
    index_type = torch.int32

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        torch.manual_seed(seed)

    def numbers(self, *shape: int, same: float = 0.6) -> torch.Tensor:
        """Random numbers of x's dtype, or of any."""
        dtype = self.dtype if self.random() < same else self.choice(DTYPES)
        return torch.randn(shape, device=self.device).to(dtype)

    def index(self, values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
        made = torch.tensor(values, dtype=dtype or self.index_type, device=self.device)
        return strided(made) if self.random() < 0.3 else made

    def length(self) -> int:
        return self.choice([0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 33, self.randint(0, 200)])

    def ids(self, length: int) -> list[int]:
        """Sequence ids of one row: short runs, some of them padding, with more padding at its ends in some rows."""
        found = [-1] * self.choice([0, 0, 0, self.length()])
        while len(found) < length:
            found += [self.choice([0, 1, 2, 7, -1, -(2**31), 2**31 - 1])] * max(1, self.length() // 2)
        kept = max(length - self.choice([0, 0, 0, self.length()]), 0)
        return [*found[:kept], *[-3] * (length - kept)]

    def sequences(self, channels: int) -> tuple[tuple[int, ...], int, dict[str, Any]]:
        """x's shape, the number of states, and how x holds sequences."""
        form = self.choice(["rows", "ids", "packed", "packed"])
        if form == "packed":
            first, behind = self.choice([0, 0, 2]), self.choice([0, 0, 3])
            lengths = [self.length() for _ in range(self.choice([0, 1, 2, 3, 5, 9]))]
            starts = list(itertools.accumulate(lengths, initial=first))
            shape: tuple[int, ...] = (channels, starts[-1] + behind)
            if self.random() < 0.7:
                shape = (1, *shape)
            return shape, len(lengths), {"cu_seqlens": self.index(starts)}
        batch, length = self.choice([0, 1, 1, 2, 3, 5]), self.length()
        options: dict[str, Any] = {}
        if form == "ids":
            rows = [self.ids(length) for _ in range(batch)] if self.random() < 0.8 else [self.ids(length)] * batch
            options["seq_idx"] = self.index(rows).view(batch, length)
        return (batch, channels, length), batch, options

    def cache(self, states: int, channels: int, history: int) -> dict[str, Any]:
        """A cache with NaN in columns and slots that no sequence uses."""
        options: dict[str, Any] = {}
        slots, names = states, list(range(states))
        if self.random() < 0.7:
            slots = states + self.randint(0, 3)
            none = [-1, slots, slots + 40, -7, 2**31 - 1]
            names = [self.choice(none) if self.random() < 0.2 else slot for slot in self.sample(range(slots), states)]
            unread = [self.randrange(-1, slots + 1) for _ in range(self.choice([0, 0, 2]))]
            options["cache_indices"] = self.index(names + unread)
        if self.random() < 0.3:
            options["null_slot_id"] = 0
        if self.random() < 0.3:
            options["pad_slot_id"] = self.choice([1, 2, -7, 2**40])
        is_old = [self.random() < 0.6 for _ in range(states)]
        if self.random() < 0.6:
            options["has_initial_state"] = self.index(is_old, torch.bool)
        else:
            is_old = [True] * states
        cache = torch.full((slots, channels, history + self.choice([0, 0, 1, 2, 5])), float("nan"), device=self.device)
        for name, old in zip(names, is_old, strict=True):
            if 0 <= name < slots and old:
                cache[name] = torch.randn(cache.shape[1:], device=self.device)
        if self.random() < 0.5:
            cache[..., : cache.shape[2] - history] = float("nan")
        dtype = self.dtype if self.random() < 0.6 else self.choice(DTYPES)
        return options | {"state_cache": self.choice(STATE_LAYOUTS)(cache.to(dtype))}

    def operand(self, shape: tuple[int, ...], counts: torch.Tensor | None = None) -> torch.Tensor:
        """An operand that broadcasts to the shape; a full one has NaN at unused positions."""
        sides = self.choice([(1, 1, 1), (0, 1, 0), (0, 0, 1), (1, 0, 0), (0, 0, 0), (1, 0, 1)])[-len(shape) :]
        made = self.numbers(*(size if kept else 1 for size, kept in zip(shape, sides, strict=True)), same=0.3)
        if counts is not None and made.shape == counts.shape:
            made = made.masked_fill(~counts, float("nan"))
        return self.choice(X_LAYOUTS)(made) if 0 not in made.stride() else made

    def chains(self, shape: tuple[int, ...], counts: torch.Tensor | None) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.random() < 0.3:
            made["pre"] = self.choice([stages.mul(self.operand(shape, counts)), stages.scale(0.5) | stages.neg()])
        if self.random() < 0.3:
            made["residual"] = self.operand(shape, counts)
        if self.random() < 0.3:
            made["post"] = stages.scale(0.5) | stages.mul(self.operand(shape, counts)) | stages.tanh()
        return made

    def problem(self, device: str = "cpu") -> tuple[list[Any], dict[str, Any]]:
        """Arguments and options."""
        self.device, self.dtype, self.index_type = device, self.choice(DTYPES), self.choice([torch.int32, torch.int64])
        channels, width = self.choice([1, 2, 3, 8, 32, 33, self.randint(1, 40)]), self.choice([1, 2, 3, 4, 4, 5, 7, 9])
        dilation = self.choice([1, 1, 1, 2, 3])
        shape, states, options = self.sequences(channels)
        history = (width - 1) * dilation
        weight, bias = self.numbers(channels, width), self.choice([None, self.numbers(channels)])
        if self.random() < 0.3:
            weight = permuted(weight)
        if dilation > 1:
            options["dilation"] = dilation
        options["activation"] = self.choice([None, "identity", "silu", "swish"])
        form = self.choice(["none", "initial", "cache"])
        if form == "cache":
            options |= self.cache(states, channels, history)
        else:
            example = self.choice(STATE_LAYOUTS)(self.numbers(states, channels, history))
            options |= {"final_states_out": example} if self.random() < 0.5 else {}
        if form == "initial":
            options["initial_states"] = self.choice([*STATE_LAYOUTS, expanded])(self.numbers(*example.shape))
        x, counts = self.numbers(*shape, same=1), None
        if self.random() < 0.5 and x.numel() > 0:
            counts = counted(x, weight, options)
            value = self.choice([float("nan"), float("inf"), -float("inf")])
            x[~counts] = value
            x.view(-1)[self.randrange(x.numel())] = value
        options |= self.chains(shape, counts)
        x = self.choice([*X_LAYOUTS, *X_LAYOUTS, expanded])(x)
        return [x, weight, bias], options
