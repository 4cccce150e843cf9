"""What the contract tests need of an op: the type of the registry's rows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from common import DTYPES
from planned_calls import Call as PlannedCall


class Call(NamedTuple):
    """A call of a raw op."""

    op: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def run(call: Call) -> list[torch.Tensor]:
    op, arguments, options = call
    result = op(*arguments, **options)
    return list(result) if isinstance(result, (list, tuple)) else [result]


def weights(x: torch.Tensor, *shape: int) -> torch.Tensor:
    """Weights that are all 1, of x's dtype, or of the dtype that a uint8 image takes."""
    return torch.ones(shape, dtype=torch.float32 if x.dtype == torch.uint8 else x.dtype, device=x.device)


def with_post(chain: str, dtype: torch.dtype | None, **others: Any) -> dict[str, Any]:
    """Options of a raw op."""
    return {"post": chain, **({} if dtype is None else {"dtype": dtype}), **others}


EXTENTS = [0, 1, 2, 3, 4, 6, 20]
Arguments = tuple[list[Any], dict[str, Any]]


class Draw(random.Random):
    """Arguments that may be wrong."""

    def tensor(self, *shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=self.choice([torch.float32] * 12 + [torch.float16, torch.int32]))

    def any_tensor(self, least: int, most: int) -> torch.Tensor:
        return self.tensor(*self.choices(EXTENTS, k=self.randint(least, most)))

    def rarely(self, wrong: Callable[[], Any], right: Callable[[], Any], often: float = 0.1) -> Any:
        return wrong() if self.random() < often else right()

    def index(self, *right: int) -> torch.Tensor:
        dtype = self.choice([torch.int32] * 6 + [torch.int64] * 6 + [torch.int16])
        wrong = self.rarely(lambda: self.choices([0, 1, 2, 3], k=self.randint(1, 3)), lambda: None)
        return torch.zeros(wrong or right, dtype=dtype)

    def options(self, *chains: str) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        if self.random() < 0.05:
            drawn["schedule"] = self.choice(["fastest", "direct", "two_stage", "sync"])
        if self.random() < 0.05:
            drawn["depth"] = self.choice([0, 1, 2, 3, 9, -1])
        return drawn | self.chains(*chains)

    def chains(self, *chains: str) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        for chain in chains:
            if self.random() < 0.15:
                drawn[chain] = self.choice(["add($0)", "silu", "sulu"])
                drawn[chain + "_operands"] = [self.any_tensor(0, 2)]
        return drawn


View = Callable[[torch.Tensor], torch.Tensor]
# Gives the calls on a device by name; a call's name is its test's name.
Calls = Callable[[str], dict[str, Callable[..., Any]]]


def no_calls(device: str) -> dict[str, Any]:
    return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An op.

    Attributes:
        op: the function's name.
        benchmark: the file of benchmarks/ with its suite.
        bad_calls: the file of tests/ that breaks its rules.
        kernels: the folder of kernels/; the op's name by default.
        entry: the raw op, and its file of ops/; the op's name by default.
        results: the file of the op's tests that compares results with the definition.
        variants: the rank of an input, and what makes a raw call of one, of a chain's text and of a result's dtype.
        plain: the variant that stands for all.
        dtypes: of inputs.
        broken_chains: by argument, texts that are no chain.
        refused: raw calls with a wrong dtype or shape, which fake kernels refuse too.
        drawn: random arguments of raw ops, which have these functions' names.
        raw: raw ops of a (2, 4, 10) tensor, with a chain behind each.
        operands: raw ops with a chain that has the tensor as its only operand.
        written: a result, and a call that writes it.
        places: calls with a (2, 4, 10) tensor in each place where one can be.
        arguments: calls with a value of any type in the place of an argument.
        viewed: calls with a function around each tensor that is taken.
        viewed_outs: calls that write a (2, 4, 9) tensor, or return one for None.
        cast: for convolutions, the raw op and the function, each of input, weight and bias.
        planned: calls for `plan` in every layout; None for an op without plans.
    """

    op: str
    benchmark: str
    bad_calls: str = "contracts/test_errors.py"
    kernels: str = ""
    entry: str = ""
    results: str = "test_results.py"
    variants: dict[str, tuple[int, Callable[..., Call]]]
    plain: str
    dtypes: list[torch.dtype] = dataclasses.field(default_factory=lambda: DTYPES)
    broken_chains: dict[str, str]
    refused: Callable[[str], list[Call]]
    drawn: tuple[Callable[[Draw], Arguments], ...]
    raw: Calls
    operands: Calls
    written: Callable[[str], dict[str, tuple[torch.Tensor, Callable[[torch.Tensor], Any]]]]
    places: Calls
    arguments: Calls
    viewed: Calls
    viewed_outs: Calls
    cast: Callable[[str], dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = no_calls
    planned: Callable[[torch.dtype], Iterator[PlannedCall]] | None

    @property
    def raw_op(self) -> str:
        """The raw op's name."""
        return self.entry or self.op
