"""`causal_conv1d` of a batch of sequences, by the kernels that have schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ._apply import given_options, needs_references, with_references
from ._apply import transform as apply_chain
from ._arguments import check_tensor
from ._autocast import without_autocast
from ._autograd import check_out
from ._call import run
from ._sequences import check_call, has_own_stages
from .chain import Chain

_OP = "causal_conv1d"


def suits_sequences(
    x: torch.Tensor, weight: torch.Tensor, dilation: int, before: Chain | None, behind: Chain | None
) -> bool:
    """Whether a batch of sequences with final states takes the kernels of packed sequences, in one launch.

    They are as fast as the others for few taps without chains. Channels-last, `pre` would otherwise run before both the
    convolution and the states.
    """
    if dilation != 1 or not has_taps(weight) or weight.shape[1] > 4 or x.dim() != 3:
        return False
    if before is None:
        return behind is None
    return x.stride(1) == 1 and _is_light(before) and _is_light(behind)


def _is_light(chain: Chain | None) -> bool:
    """Whether the kernels of sequences contain the stages, also after an activation."""
    if chain is None:
        return True
    names = {stage.partition("(")[0] for stage in chain.text.split("|")}
    return names <= {"silu", "mul", "add"} and len(chain) <= 2 and len(chain.operands) <= 1


def has_history_in_front_of_own_stages(
    x: torch.Tensor, initial_states: torch.Tensor | None, before: Chain | None, behind: Chain | None
) -> bool:
    """The kernels of rows would round this history to x's dtype; the kernels of sequences link no `cpp` stages."""
    return initial_states is not None and initial_states.dtype != x.dtype and has_own_stages(before, behind)


@dataclasses.dataclass
class Rows:
    """A convolution of a batch of sequences, by the kernels that have schedules."""

    x: torch.Tensor
    others: tuple[Any, ...]  # weight, bias, activation and initial states
    numbers: dict[str, Any]
    before: Chain | None
    behind: Chain | None
    schedule: str
    depth: int | None
    out: torch.Tensor | None

    def result(self) -> torch.Tensor:
        x = self.x
        if needs_references(x, self.before, self.behind):
            self.check(None)
            return with_references(
                _OP, self._compute, x, pre=self.before, post=self.behind, out=self.out, dtype=x.dtype
            )
        options = given_options(_OP, x, self.schedule, self.depth, pre=self.before, post=self.behind)
        return run(_OP, (x, *self.others), {**self.numbers, **options}, self.out)

    def _compute(
        self, x: torch.Tensor, *, pre: Any, post: Any, out: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        """The op for `with_references`: its result has the dtype of its input."""
        if pre is not None and x.dtype != dtype:
            x, pre = apply_chain(x, pre, dtype=x.dtype), None
        options = given_options(_OP, x, self.schedule, self.depth, pre=pre, post=post)
        with without_autocast(x.device.type):  # which has cast x already and would round it again
            return run(_OP, (x.to(dtype), *self.others), {**self.numbers, **options}, out)

    def with_states(self, states_out: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The states follow in a separate launch."""
        if self.out is not None or self.before is not None:
            self.check(states_out)
        if self.before is not None:
            self.x, self.before = apply_chain(self.x, self.before, dtype=self.x.dtype), None
        weight, initial_states = self.others[0], self.others[3]
        # Otherwise the op refuses the weight.
        width = (weight.shape[1] - 1) * self.numbers.get("dilation", 1) if has_taps(weight) else 0
        if states_out is not None and has_taps(weight):
            _check_final_states_out(self.x, width, initial_states, states_out, self.out)
        result = self.result()
        states = run(
            _OP, (self.x, width, initial_states), {}, states_out,
            raw="causal_conv1d_final_states", argument="final_states_out",
        )  # fmt: skip
        return result, states

    def check(self, states_out: torch.Tensor | None) -> None:
        """Refuses the call for all reasons but its schedule, before a chain runs or `out` is written."""
        check_call(
            "causal_conv1d_sequences", (self.x, *self.others), self.numbers, self.before, self.behind,
            out=self.out, final_states_out=states_out,
        )  # fmt: skip


def has_taps(weight: torch.Tensor) -> bool:
    """Whether a weight can be (C, K)."""
    return not weight.is_nested and weight.dim() == 2 and weight.shape[1] > 0


def _check_final_states_out(
    x: torch.Tensor, width: int, initial_states: torch.Tensor | None, states: torch.Tensor, out: torch.Tensor | None
) -> None:
    """Checks `final_states_out`, before the first of two ops writes into `out`."""
    check_out(_OP, "final_states_out", states)
    if out is None or torch.compiler.is_compiling():
        return
    check_tensor(_OP, "out", out)
    run(_OP, (x, width, initial_states, states, out), {}, raw="_check_causal_conv1d_final_states_out")
