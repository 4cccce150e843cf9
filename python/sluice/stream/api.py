"""`stream_map` and `stream_iter`: a Streamer for one call, taken from those that are idle."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from . import process
from .arguments import check_budget, check_depth, parse_devices
from .modes import untraced
from .streamer import Streamer

_MOST_IDLE = 4
# No lock guards it: a collection of garbage may run at any step, and end an iterator, which gives its Streamer back.
# Each change is one call of `dict`; the oldest come first.
_idle: dict[Streamer, Hashable] = {}
process.after_fork(_idle.clear)


def _borrow(key: Hashable, *arguments: Any) -> Streamer:
    for streamer, known in reversed(_idle.copy().items()):
        if known == key and _idle.pop(streamer, None) is not None and not streamer._tenancy.is_closed:
            return streamer
    return Streamer(*arguments)


def _give_back(key: Hashable, streamer: Streamer) -> None:
    if streamer._tenancy.is_closed:
        return
    streamer._lender.let_go()  # memory of the device is the caller's again; streams and rings stay
    _idle[streamer] = key
    for old in list(_idle.copy())[:-_MOST_IDLE]:
        if _idle.pop(old, None) is not None:
            old.close()


def stream_map(
    fn: Any,
    *inputs: Any,
    dim: int = 0,
    out: Any = None,
    chunk_size: int | None = None,
    depth: int = 3,
    halo: int | tuple[int, int] = 0,
    devices: Any = None,
    order: str = "depth_first",
    staging: str = "auto",
    memory_budget: int | None = None,
    pinned_budget: int | None = None,
    non_blocking: bool = False,
    progress: Any = None,
) -> Any:
    """`fn(*inputs)` on a GPU, chunk by chunk along `dim`, with both copies and the compute overlapped.

    The inputs may be larger than the GPU's memory, and larger than the host's where they are memory-mapped files.
    Without a GPU the same call gives the same result on the CPU. Inputs that are on a GPU already give a result there.

    Args:
        fn: called with a chunk of each input, on the device, under a stream of its own; in the caller's thread (with
            several devices in one worker a device) with the caller's grad, inference and autocast modes. It may change
            its chunks in place: the inputs never change. Returns a tensor, or a tuple, list or dict of tensors, on the
            device. With several devices also a dict {device: callable}.
        inputs: tensors or NumPy arrays of one extent along `dim`; any strides and dtypes; pageable, pinned, mapped.
        dim: the dimension that is divided; a negative one counts from each tensor's end.
        out: written and returned as that object: a tensor, or a structure of tensors as `fn` returns; any strides,
            pinned or not. May be an input itself, but must not overlap one otherwise.
        chunk_size: rows of `dim` a chunk, 1 to the extent; the last chunk is shorter. None: from the link's speed.
        depth: slots: chunks on a device at once, 1 to 256.
        halo: rows that a chunk gets in addition on either side, an int or (left, right), fewer at the tensor's ends.
            `fn` keeps the extent, and the halo's rows are cut off what it returns.
        devices: a device or a list of them, chunks going to whichever is free; None: the current GPU, else the CPU.
        order: "depth_first" (copy, compute, copy for each chunk), "breadth_first" (the same in waves of `depth`
            chunks), "sequential" (nothing overlaps).
        staging: "auto" (directly from and to pinned memory, else through a pinned ring), "register" (page-locks in
            place, for repeated use, what fits into `pinned_budget`), "ring", "pageable" (plain copies, for
            comparison; warns).
        memory_budget: bytes a device for slots and one output of `fn`; a hard limit that makes chunks smaller.
        pinned_budget: bytes of page-locked memory for rings and results; None: a quarter of the machine's memory, 4 GiB
            at most. Results that do not fit are pageable.
        non_blocking: return a `StreamFuture` when all calls of `fn` are issued.
        progress: True for a tqdm bar, if tqdm is installed, or a callable that gets (done, total) in bytes.

    Returns:
        The results of all chunks, concatenated along `dim`, in the structure that `fn` returns; complete. On the host:
        pinned if that fits the budget. With `non_blocking`, a `StreamFuture`.

    Raises:
        TypeError: an argument of the wrong type, `fn` returning something else than tensors, an `out` of another dtype,
            a tensor without memory of its own, such as a DTensor or a fake tensor.
        ValueError: an argument out of range, results of chunks that do not fit together or `out`, a budget that not
            even one row fits.
        RuntimeError: an input that requires grad in grad mode; a source that is changed while it is streamed; no thread
            can be started.
        OSError: a memory-mapped file that is cut short while it is read.
        concurrent.futures.CancelledError: it was cancelled.
        BaseException: what `fn` raises, with the chunk added as a note. Nothing is in flight then. `out` may be
            partly written, and a note says so.

    Example:
        >>> import torch, sluice
        >>> x = torch.arange(10.0).reshape(5, 2)
        >>> sluice.stream_map(lambda x: x.square().sum(1), x, chunk_size=2)
        tensor([  1.,  13.,  41.,  85., 145.])
    """
    op = "stream_map"
    places = tuple(parse_devices(op, devices))
    depth = check_depth(op, depth)
    check_budget(op, "memory_budget", memory_budget)
    check_budget(op, "pinned_budget", pinned_budget)
    arguments = (devices if devices is None else list(places), depth, memory_budget, pinned_budget)
    key = (places, devices is None, depth, memory_budget, pinned_budget)
    streamer = untraced(_borrow, key, *arguments)
    return streamer._map(
        op,
        fn,
        inputs,
        dim,
        out,
        chunk_size,
        halo,
        order,
        staging,
        non_blocking,
        progress,
        functools.partial(_give_back, key, streamer),
    )


def stream_iter(
    fn: Any, iterable: Iterable[Any], *, depth: int = 3, devices: Any = None, ordered: bool = True
) -> Iterator[Any]:
    """`fn(item)` on a GPU for each item of an iterable, with copies and compute of neighbouring items overlapped.

    Args:
        fn: as for `stream_map`. A tuple item is `fn`'s arguments; host tensors and NumPy arrays in an item, in lists
            and dicts within it too, arrive on the device, everything else as it is.
        iterable: of items of any shapes. At most depth + 2 items are pulled ahead of what was given out, each when the
            one before it has been read, so that a source may fill its buffers anew; items of a list or a tuple must
            not change meanwhile. It is closed when the iterator is left early.
        depth: slots a device.
        devices: as for `stream_map`.
        ordered: results in the order of items; False: as they are complete, which makes a difference for several
            devices.

    Yields:
        What `fn` returns, on the host, each result in memory of its own.

    Raises:
        TypeError: an argument of the wrong type, `fn` returning something else than tensors, or a tensor without memory
            of its own.
        ValueError: an argument out of range.
        RuntimeError: an item that is changed while it is read; no thread can be started; the iterator was made by
            another process, of which this one is a fork.
        Exception: what `fn` or the iterable raise, after the results that came before it; the item's number is added
            as a note. `KeyboardInterrupt` and the like come at once.

    Example:
        >>> import torch, sluice
        >>> pairs = ((torch.full((n,), 2.0), n) for n in range(1, 4))
        >>> [y.tolist() for y in sluice.stream_iter(lambda x, n: x * n, pairs)]
        [[2.0], [4.0, 4.0], [6.0, 6.0, 6.0]]
    """
    op = "stream_iter"
    places = tuple(parse_devices(op, devices))
    depth = check_depth(op, depth)
    key = (places, devices is None, depth, None, None)
    streamer: Streamer = untraced(_borrow, key, devices if devices is None else list(places), depth)
    return streamer._iter(op, fn, iterable, ordered, functools.partial(_give_back, key, streamer))
