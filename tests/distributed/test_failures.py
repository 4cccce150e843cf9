"""A rank that ends or raises: the others get torch's own error within the group's timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import failing_calls
import pytest
import torch
from ranks import Ranks

pytestmark = pytest.mark.no_gpu


@pytest.fixture
def three() -> Iterator[Ranks]:
    """A group of its own: it is of no use after a failure."""
    group = Ranks(3)
    yield group
    group.close()


@pytest.mark.parametrize("name", ["conv1d", "causal_conv1d"])
def test_a_rank_that_dies_gives_the_others_torchs_error(name: str, three: Ranks) -> None:
    answers = three.answers(failing_calls.ends_on_one_rank, name, 1)
    assert answers[1] == ("ended", None)
    # A causal piece waits for the ranks before it only.
    waiting = [0, 2] if name == "conv1d" else [2]
    for rank in waiting:
        text, found = answers[rank]
        assert text == ""
        kind, words = found
        assert kind in ("RuntimeError", "DistBackendError"), found
        assert "sluice" not in words


def test_a_rank_that_raises_lets_the_others_wait_for_the_timeout(three: Ranks) -> None:
    seconds = 5.0
    answers = three.answers(failing_calls.raises_on_one_rank, 1, seconds)
    kind, words, waited = answers[1][1]
    assert (kind, words) == ("ValueError", "causal_conv1d: weight must have shape (C, K) with C = 2, got (3, 3)")
    kind, words, waited = answers[2][1]
    assert kind in ("RuntimeError", "DistBackendError")
    assert "imed out" in words, words
    assert waited >= 0.9 * seconds  # an upper bound would fail on a busy machine; the group's deadline is the tests'


def test_a_rank_outside_of_the_group_gets_torchs_error(ranks: Callable[[int], Ranks]) -> None:
    found = ranks(3).run(failing_calls.of_a_group_without, 1)
    assert found[0] == found[2] == ("", "")
    kind, words = found[1]
    assert kind == "ValueError"
    assert words.startswith("Global rank 1 is not part of group")


CONV = {"x_local": (2, 4, 5), "weight": (4, 4, 3)}
CAUSAL = {"x_local": (2, 4, 5), "weight": (4, 3)}


@pytest.mark.parametrize(
    ("name", "first", "second", "words"),
    [
        ("conv1d", CONV, {**CONV, "x_local": (3, 4, 5)}, "conv1d: the batch must be the same on all ranks, "
                                                         "got 2 on rank 0 and 3 on rank 1"),
        ("conv1d", CONV, {**CONV, "stride": 2}, "conv1d: stride must be the same on all ranks, got 1 on rank 0 and 2 "
                                                "on rank 1"),
        ("conv1d", CONV, {**CONV, "weight": (4, 4, 2)}, "conv1d: the number of taps must be the same on all ranks, got "
                                                        "3 on rank 0 and 2 on rank 1"),
        ("conv1d", {**CONV, "x_local": (2, 4, 1)}, {**CONV, "x_local": (2, 4, 1)},
         "conv1d: input must have at least 3 positions with padding, the kernel's reach, got 2"),
        ("conv1d", {**CONV, "x_local": (2, 4, 0), "padding": 3}, {**CONV, "x_local": (2, 4, 0), "padding": 3},
         "conv1d: input must have at least one position, got (2, 4, 0)"),
        ("causal_conv1d", CAUSAL, {**CAUSAL, "return_final_states": True},
         "causal_conv1d: return_final_states must be the same on all ranks, got 0 on rank 0 and 1 on rank 1"),
        ("causal_conv1d", {**CAUSAL, "seq_idx": torch.zeros(2, 5).int()},
         {**CAUSAL, "seq_idx": torch.zeros(2, 5).long()},
         "causal_conv1d: the bytes of an id must be the same on all ranks, got 4 on rank 0 and 8 on rank 1"),
        ("causal_conv1d", CAUSAL, {**CAUSAL, "dilation": 2},
         "causal_conv1d: (K - 1) * dilation must be the same on all ranks, got 2 on rank 0 and 4 on rank 1"),
    ],
)  # fmt: skip
def test_what_ranks_do_not_agree_on_is_refused_everywhere(
    name: str, first: dict[str, object], second: dict[str, object], words: str, ranks: Callable[[int], Ranks]
) -> None:
    assert ranks(2).run(failing_calls.with_own, name, [first, second]) == [("ValueError", words)] * 2
