"""causal_conv1d_update beside its definition: how one call is checked, and calls with any of its options."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch

import sluice
from common import (
    DTYPES,
    assert_close,
    contiguous,
    double_chain,
    ends_of_words,
    offset_by_one,
    parts_of_positions,
    permuted,
    poisoned_like,
    sliced,
)
from sluice import stages


def projected(x: torch.Tensor) -> torch.Tensor:
    """Part of a wider projection: each token is a row of more channels, with NaN around x's."""
    rows = x.mT if x.dim() == 3 else x
    wide = x.new_full((*rows.shape[:-1], rows.shape[-1] + 7), float("nan"))
    part = wide[..., 5 : 5 + rows.shape[-1]]
    part.copy_(rows)
    return part.mT if x.dim() == 3 else part


X_LAYOUTS = [contiguous, permuted, projected, sliced]
STATE_LAYOUTS = [contiguous, permuted, sliced, offset_by_one, ends_of_words, parts_of_positions]
INDEX_TYPES = [torch.int32, torch.int64]


def twin(t: torch.Tensor) -> torch.Tensor:
    """A copy with t's strides, in memory that is NaN everywhere else."""
    reach = 1 + sum(max(0, size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    memory = t.new_full((t.storage_offset() + reach,), float("nan"))
    return memory.as_strided(t.shape, t.stride(), t.storage_offset()).copy_(t)


def assert_nothing_around_is_written(view: torch.Tensor) -> None:
    """Ends a `twin`: its own elements become NaN."""
    memory = view._base
    assert memory is not None
    view.fill_(float("nan"))
    assert memory.isnan().all()


def bits(t: torch.Tensor) -> torch.Tensor:
    return t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def assert_same_bits(a: torch.Tensor, b: torch.Tensor) -> None:
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert torch.equal(bits(a), bits(b))


def expected(
    x: torch.Tensor,
    state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    *,
    pre: sluice.Chain | None = None,
    residual: torch.Tensor | None = None,
    post: sluice.Chain | None = None,
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result in float64, and the state bit by bit."""
    reference = sluice.reference.causal_conv1d_update
    tokens = x if pre is None else sluice.reference.transform(x, pre, dtype=x.dtype)
    result, _ = reference(
        tokens.double(),
        state.double(),
        weight.double(),
        None if bias is None else bias.double(),
        activation,
        residual=None if residual is None else residual.double(),
        post=None if post is None else double_chain(post),
        **options,
    )
    return result, reference(tokens, state, weight, **options)[1]


def check(x: torch.Tensor, state: torch.Tensor, weight: torch.Tensor, *others: Any, **options: Any) -> torch.Tensor:
    """The op against its definition, into a poisoned `out` with x's strides and into a fresh result, which it returns.

    The arguments stay as they are; `others` are the bias and the activation.
    """
    wanted, wanted_state = expected(x, state, weight, *others, **options)
    changed, out, copy = twin(state), twin(poisoned_like(x)), x.clone()
    version = changed._version
    assert sluice.causal_conv1d_update(x, changed, weight, *others, out=out, **options) is out
    assert changed._version > version
    assert_same_bits(changed, wanted_state)
    assert_same_bits(x, copy)
    assert_close(out, wanted, factor=2)
    assert not out[wanted == 0].any()
    again = twin(state)
    fresh = sluice.causal_conv1d_update(x, again, weight, *others, **options)
    assert_same_bits(again, wanted_state)
    torch.testing.assert_close(fresh, out, rtol=0, atol=0, equal_nan=True)
    for view in (changed, again, out):
        assert_nothing_around_is_written(view)
    return fresh


class Draw(random.Random):
    """Problems with any of the op's options, from one seed."""

    def slots(self, sequences: int, null: int | None) -> tuple[int, list[int] | list[list[int]] | None]:
        """The number of slots, and the index or the row of blocks of each sequence; no two of them share a slot."""
        if self.random() < 0.3:
            return sequences, None
        slots = sequences + self.randint(0, 3)
        names = [-1 if self.random() < 0.2 else slot for slot in self.sample(range(slots), sequences)]
        if self.random() < 0.6:
            return slots, names
        names = [-1 if name == null else name for name in names]  # else the block before it counts
        none = [-1, slots, slots + 40, -7]
        return slots, [[self.randrange(slots), name, self.choice(none)] if name >= 0 else none[:3] for name in names]

    def chains(self, shape: tuple[int, ...], channel: int, device: str) -> dict[str, Any]:
        broadcast = [shape, tuple(size if d == channel else 1 for d, size in enumerate(shape)), (shape[0],) + (1,) * 2]

        def operand() -> torch.Tensor:
            return torch.randn(self.choice(broadcast)[: len(shape)], device=device)

        made: dict[str, Any] = {}
        if self.random() < 0.4:
            made["pre"] = stages.mul(operand())
        if self.random() < 0.4:
            made["residual"] = operand()
        if self.random() < 0.4:
            made["post"] = stages.scale(0.5) | stages.mul(operand()) | stages.tanh()
        return made

    def problem(self, device: str) -> tuple[list[Any], dict[str, Any]]:
        """Arguments and options."""
        dtype, channels, sequences = self.choice(DTYPES), self.choice([33, 64, 130, 257]), self.randint(1, 6)
        width, dilation = self.choice([1, 2, 3, 4, 4, 5, 9]), self.choice([1, 1, 1, 2, 3])
        form, index_type = (
            self.choice(["end", "circular", "front", "accepted"]),
            self.choice([torch.int32, torch.int64]),
        )
        history, needed = (width - 1) * dilation, 0

        def numbers(*shape: int, same: float = 0.6) -> torch.Tensor:
            return torch.randn(shape, device=device).to(dtype if self.random() < same else self.choice(DTYPES))

        def index(values: Any) -> torch.Tensor:
            return torch.tensor(values, dtype=index_type, device=device)

        options: dict[str, Any] = {"dilation": dilation} if dilation > 1 else {}
        if self.random() < 0.35:
            ends = list(
                itertools.accumulate(self.choices([0, 1, 2, 3, 7], k=sequences), initial=self.choice([0, 0, 2]))
            )
            options["query_start_loc"] = index(ends)
            shape: tuple[int, ...] = (ends[-1] + self.choice([0, 0, 3]), channels)
        else:
            tokens = self.choice([0, 1, 2, 3, 6, 11])  # 0: x has two dimensions
            shape = (sequences, channels, tokens) if tokens > 0 else (sequences, channels)
            needed = max(history - 1, 0) + max(tokens, 1) if form == "accepted" else 0
        if form == "circular":
            options["cache_seqlens"] = index([self.randint(-50, 50) for _ in range(sequences)])
        elif form != "end":
            options["state_at"] = "front"
        if form == "accepted":
            options["num_accepted_tokens"] = index([self.randint(-1, 8) for _ in range(sequences)])
        null = 0 if self.random() < 0.3 else None
        slots, names = self.slots(sequences, null)
        if names is not None:
            options |= {"conv_state_indices": index(names), "null_slot_id": null}
        options |= self.chains(shape, 1, device)
        x = self.choice(X_LAYOUTS)(numbers(*shape, same=1))
        columns = max(history, needed) + self.choice([0, 0, 1, 2, 5])
        state = self.choice([contiguous, permuted, sliced, offset_by_one])(numbers(slots, channels, columns))
        bias = self.choice([None, numbers(channels)])
        return [x, state, numbers(channels, width), bias, self.choice([None, "identity", "silu", "swish"])], options
