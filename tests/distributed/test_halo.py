"""Who needs what from whom: pure functions of lengths, compared with counting position by position."""

from __future__ import annotations

import random

import pytest
from split_calls import owned, random_lengths

from sluice.distributed.halo import (
    Message,
    Positions,
    Windows,
    chunks_of,
    history_of,
    outputs_of,
    pieces_of,
    share_of,
)

pytestmark = pytest.mark.no_gpu


def numbers(positions: Positions) -> set[int]:
    return set(range(positions.start, positions.stop))


def arrivals(messages: tuple[Message, ...]) -> list[tuple[int, Positions]]:
    return [(message.peer, message.positions) for message in messages]


def assert_messages_match(sends: list[tuple[Message, ...]], receives: list[tuple[Message, ...]]) -> None:
    """Every message is received by the rank that it is sent to, in the order of sending."""
    for a, sent in enumerate(sends):
        for b, received in enumerate(receives):
            assert [m.positions for m in sent if m.peer == b] == [m.positions for m in received if m.peer == a]
            assert a != b or not [m for m in sent if m.peer == b]


@pytest.mark.parametrize("kind", ["by position", "by chunks"])
def test_every_rank_has_what_its_windows_read(kind: str) -> None:
    for case in range(200):
        draw = random.Random(f"{case}")
        size, reach = draw.randrange(1, 6), draw.randrange(0, 12)
        windows = Windows(draw.choice([1, 1, 2, 3, 7]), reach, draw.randrange(0, 15), draw.randrange(0, 15))
        length = max(draw.randrange(1, 40), reach + 1 - windows.left - windows.right)
        pieces = pieces_of(tuple(random_lengths(draw, length, size)))
        outputs = outputs_of(pieces, windows)
        if kind == "by chunks":
            pieces, outputs = chunks_of(length, size), chunks_of(windows.outputs(length), size)
        shares = [share_of(pieces, outputs, windows, rank) for rank in range(size)]
        for share, piece in zip(shares, pieces, strict=True):
            received = [numbers(message.positions) for message in share.receives]
            has = numbers(piece).union(*received)
            assert len(has) == piece.count + sum(map(len, received))  # nothing comes twice
            reads = {
                o: set(range(o * windows.stride - windows.left, o * windows.stride - windows.left + reach + 1))
                for o in numbers(share.outputs)
            }
            inside = set(range(length))
            needed = set().union(*reads.values())
            assert needed & inside <= has <= inside
            # Nothing comes in vain, except between windows that are far apart.
            assert has - numbers(piece) <= set(range(min(needed, default=0), max(needed, default=-1) + 1))
            assert numbers(share.interior) == {o for o, read in reads.items() if read <= numbers(piece)}
            edges = [numbers(edge.outputs) for edge in share.edges]
            assert sorted([o for edge in edges for o in edge] + [*numbers(share.interior)]) == sorted(
                numbers(share.outputs)
            )
            for edge in share.edges:
                assert numbers(edge.inputs) >= set().union(*(reads[o] for o in numbers(edge.outputs)))
        assert_messages_match([share.sends for share in shares], [share.receives for share in shares])


def test_outputs_are_counted_by_the_documented_rule() -> None:
    for case in range(200):
        draw = random.Random(f"{case}")
        windows = Windows(draw.randrange(1, 5), draw.randrange(0, 6), draw.randrange(0, 9), draw.randrange(0, 9))
        length = draw.randrange(1, 30) + windows.reach
        lengths = random_lengths(draw, length, draw.randrange(1, 6))
        outputs = outputs_of(pieces_of(tuple(lengths)), windows)
        assert [(o.start, o.stop) for o in outputs if o] == [
            pair for pair in owned(lengths, windows.stride, windows.outputs(length)) if pair[0] < pair[1]
        ]
        assert [o.count for o in outputs] == [b - a for a, b in owned(lengths, windows.stride, windows.outputs(length))]


def test_a_history_comes_from_as_many_ranks_as_it_takes() -> None:
    pieces = pieces_of((3, 1, 0, 2, 4))
    assert arrivals(history_of(pieces, 5, 4, False)[1]) == [
        (0, Positions(1, 3)), (1, Positions(3, 4)), (3, Positions(4, 6)),
    ]  # fmt: skip
    assert arrivals(history_of(pieces, 5, 1, False)[1]) == [(0, Positions(-2, 3))]  # two columns of initial states
    assert history_of(pieces, 5, 2, False)[1] == ()  # which has no positions
    assert arrivals(history_of(pieces, 5, 0, False)[0]) == [
        (1, Positions(-2, 3)), (3, Positions(-1, 3)), (4, Positions(1, 3)),
    ]  # fmt: skip


def test_the_last_rank_has_a_history_for_final_states() -> None:
    pieces = pieces_of((3, 4, 0))
    assert history_of(pieces, 2, 2, False)[1] == ()
    assert arrivals(history_of(pieces, 2, 2, True)[1]) == [(1, Positions(5, 7))]
    assert history_of(pieces, 0, 2, True) == ((), ())


def test_histories_match() -> None:
    for case in range(200):
        draw = random.Random(f"{case}")
        size, columns, wants_states = draw.randrange(1, 6), draw.randrange(0, 12), draw.random() < 0.5
        pieces = pieces_of(tuple(random_lengths(draw, draw.randrange(0, 30), size)))
        found = [history_of(pieces, columns, rank, wants_states) for rank in range(size)]
        assert_messages_match([sends for sends, _ in found], [receives for _, receives in found])
        for rank, (piece, (_, receives)) in enumerate(zip(pieces, found, strict=True)):
            is_needed = rank > 0 and (piece or (wants_states and rank == size - 1))
            wanted = list(range(piece.start - columns, piece.start)) if is_needed else []
            assert [n for m in receives for n in range(m.positions.start, m.positions.stop)] == wanted


def test_chunks_are_torchs() -> None:
    import torch

    for length in range(12):
        for parts in range(1, 6):
            sizes = [len(chunk) for chunk in torch.arange(length).chunk(parts)] if length else []
            assert [chunk.count for chunk in chunks_of(length, parts) if chunk] == sizes
