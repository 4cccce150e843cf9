"""`stream_map` and `stream_iter`: an idle Streamer for one call."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from . import process
from .arguments import check_budget, check_depth, parse_devices
from .modes import untraced
from .streamer import Streamer

_MOST_IDLE = 4
# No lock: garbage collection may run at any step and end an iterator, which gives its Streamer back. Each change is one
# call of `dict`; the oldest come first.
_idle: dict[Streamer, Hashable] = {}
process.after_fork(_idle.clear)


def _borrow(
    op: str, devices: Any, depth: Any, memory_budget: Any = None, pinned_budget: Any = None
) -> tuple[Hashable, Streamer]:
    """The key that all Streamers for these arguments have in common, and a Streamer for them."""
    parsed = tuple(parse_devices(op, devices))
    depth = check_depth(op, depth)
    budgets = check_budget(op, "memory_budget", memory_budget), check_budget(op, "pinned_budget", pinned_budget)
    key = (parsed, devices is None, depth, *budgets)
    for streamer, known in reversed(_idle.copy().items()):
        if known == key and _idle.pop(streamer, None) is not None and not streamer._tenancy.is_closed:
            return key, streamer
    return key, Streamer(None if devices is None else list(parsed), depth, *budgets)


def _give_back(key: Hashable, streamer: Streamer) -> None:
    if streamer._tenancy.is_closed:
        return
    streamer._lender.let_go()  # the device's memory is the caller's again; streams and rings stay
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
    result: str | None = None,
) -> Any:
    """`fn(*inputs)` on a GPU, chunk by chunk along `dim`, with both copies and the compute overlapped.

    The inputs may be larger than the GPU's memory; memory-mapped files may also be larger than the host's. Without a
    GPU the call gives the same result on the CPU. Inputs, `out` and the result may each be on the host or on the GPU.

    Args:
        fn: called with a chunk of each input, on the device, on a separate stream, in the caller's thread (with several
            devices in one worker thread per device) with the caller's grad, inference and autocast modes. It may change
            its chunks in place; the inputs never change. Returns a tensor or a pytree of tensors (tuples, lists, dicts,
            nested) on the device. None: the identity, a plain transfer. With several devices also a dict
            {device: callable}.
        inputs: tensors or NumPy arrays of one extent along `dim`; any strides and dtypes; pageable, pinned, mapped, or
            on the GPU.
        dim: the dimension that is divided; a negative one counts from each tensor's end.
        out: written and returned as that object: a tensor, or a pytree of tensors as `fn` returns; any strides, pinned
            or not, all on the host or all on the GPU. May be an input itself, but must not overlap one otherwise.
        chunk_size: rows of `dim` per chunk; the last chunk is shorter, and more than the extent is one chunk. None:
            from the host link's speed.
        depth: slots: chunks on a device at once, 1 to 256.
        halo: additional rows of a chunk on either side, an int or (left, right), fewer at the tensor's ends. `fn` keeps
            the extent; the halo's rows are removed from its result.
        devices: a device or a list of them, chunks going to any free one; None: the GPU of the inputs or of `out`, else
            the current GPU, else the CPU.
        order: "depth_first" (copy, compute, copy for each chunk), "breadth_first" (the same in waves of `depth`
            chunks), "sequential" (nothing overlaps).
        staging: "auto" (directly from and to pinned memory, else through a pinned ring), "register" (pins in place, for
            repeated use, what fits into `pinned_budget`), "ring", "pageable" (plain copies, for comparison; warns).
        memory_budget: bytes per device for slots, one output of `fn` and a result that stays there; a hard limit that
            makes chunks smaller.
        pinned_budget: bytes of pinned memory for rings and results; None: a quarter of the machine's memory, 4 GiB at
            most. Results that do not fit are pageable.
        non_blocking: return a `StreamFuture` when all calls of `fn` are issued.
        progress: True for a tqdm bar, if tqdm is installed, or a callable that gets (done, total) in bytes.
        result: "host", "device", or None: the device if all inputs are there, else the host. An `out` decides by where
            it is. With several devices the result is on the host.

    Returns:
        The complete results of all chunks, concatenated along `dim`, in the structure that `fn` returns. On the host:
        pinned if that fits the budget. With `non_blocking`, a `StreamFuture`.

    Raises:
        TypeError: an argument of the wrong type, a result of `fn` other than tensors, an `out` of another dtype, a
            tensor without memory of its own, such as a DTensor or a fake tensor.
        ValueError: an argument out of range, results of chunks that do not fit together or `out`, a budget that does
            not fit one row.
        RuntimeError: an input that requires grad in grad mode; a source that is changed while it is streamed; no thread
            can be started.
        OSError: a memory-mapped file that is truncated while it is read.
        concurrent.futures.CancelledError: it was cancelled.
        BaseException: raised by `fn`, with the chunk added as a note. Nothing is in flight then. If `out` may be partly
            written, a note says so.

    Example:
        >>> import torch, sluice
        >>> x = torch.arange(10.0).reshape(5, 2)
        >>> sluice.stream_map(lambda x: x.square().sum(1), x, chunk_size=2)
        tensor([  1.,  13.,  41.,  85., 145.])
    """
    op = "stream_map"
    key, streamer = untraced(_borrow, op, devices, depth, memory_budget, pinned_budget)
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
        result,
        functools.partial(_give_back, key, streamer),
    )


def stream_iter(
    fn: Any, iterable: Iterable[Any], *, depth: int = 3, devices: Any = None, ordered: bool = True
) -> Iterator[Any]:
    """`fn(item)` on a GPU for each item of an iterable, with copies and compute of neighbouring items overlapped.

    Args:
        fn: as for `stream_map`. A tuple item is `fn`'s arguments. Host tensors and NumPy arrays in an item, also in
            lists and dicts within it, arrive on the device; everything else is passed unchanged.
        iterable: of items of any shapes. At most depth + 2 items are pulled ahead of the results, each item when the
            item before it has been read, so a source may refill its buffers; items of a list or a tuple must not change
            meanwhile. It is closed when the iterator is left early.
        depth: slots per device.
        devices: as for `stream_map`.
        ordered: results in the order of items; False: as they are complete, which matters for several devices.

    Yields:
        The results of `fn`, on the host, each in memory of its own.

    Raises:
        TypeError: an argument of the wrong type, a result of `fn` other than tensors, or a tensor without memory of its
            own.
        ValueError: an argument out of range.
        RuntimeError: an item that is changed while it is read; no thread can be started; the iterator was made by a
            process that the calling process was forked from.
        Exception: raised by `fn` or the iterable, after the results before it; the item's number is added as a note.
            `KeyboardInterrupt` and the like come at once.

    Example:
        >>> import torch, sluice
        >>> pairs = ((torch.full((n,), 2.0), n) for n in range(1, 4))
        >>> [y.tolist() for y in sluice.stream_iter(lambda x, n: x * n, pairs)]
        [[2.0], [4.0, 4.0], [6.0, 6.0, 6.0]]
    """
    op = "stream_iter"
    key, streamer = untraced(_borrow, op, devices, depth)
    made: Iterator[Any] = streamer._iter(op, fn, iterable, ordered, functools.partial(_give_back, key, streamer))
    return made
