"""Host memory: pinned, mapped from a file, and within budgets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

import torch

from ..._arguments import check_tensor
from ..arguments import check_memory, has_cuda
from ..faults import TransferError
from ..process import Owner
from .layout import memory_order, packed_strides, span_bytes

_MIB = 1 << 20
_DROP_FROM = 64 * _MIB  # mapped files from this size on are dropped from memory after they are read
HUGE_FROM = 32 * _MIB  # a result of this size or more asks for huge pages
_RING_BUFFERS = 8
_RING_BUFFER_BYTES = 8 * _MIB
_PAGE = 4096
_SMALL = 256 << 10  # a guarded copy of that takes a few microseconds
_SHARED_FILE = 1  # Mapping of kernels/transfer/mapping.h


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def default_pinned_budget() -> int:
    """A quarter of the machine's memory, at most 4 GiB: pinning takes 0.35 s per GiB."""
    return min(4 << 30, _machine_bytes() // 4)


def default_registered_budget() -> int:
    """Registered bytes without a given budget: up to half of the machine's memory, as it is the caller's own."""
    return _machine_bytes() // 2


def ring_shape(pinned_budget: int, devices: int) -> tuple[int, int]:
    """Number and bytes of the buffers of one direction's pinned ring, so that all fit; (0, 0) if none does."""
    share = pinned_budget // (2 * devices)
    for buffers in (_RING_BUFFERS, 2):
        size = min(_RING_BUFFER_BYTES, share // buffers // _PAGE * _PAGE)
        if size >= _PAGE:
            return buffers, size
    return 0, 0


def smallest_pinned_budget(devices: int) -> int:
    """The least bytes for pinned rings."""
    return 2 * 2 * _PAGE * devices


def mapping_kind(tensor: torch.Tensor, least: int | None = None) -> int:
    """The engine's Mapping of a tensor of at least `least` bytes, whose pages are dropped after reading; else 0."""
    nbytes = span_bytes(tensor)
    if nbytes < (_DROP_FROM if least is None else least):
        return 0
    kind, _ = torch.ops.sluice._transfer_mapping(tensor.data_ptr(), nbytes)
    return int(kind)


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether a host tensor is pinned; does not query a driver that is missing."""
    return has_cuda() and tensor.numel() > 0 and bool(tensor.is_pinned())


def pinned_charge(nbytes: int) -> int:
    """Bytes that a pinned tensor takes: torch's host allocator rounds up to a power of two."""
    return 1 << max(nbytes - 1, 511).bit_length()


def host_tensor(sizes: Sequence[int], dtype: torch.dtype, pinned: bool) -> torch.Tensor:
    """An empty host tensor; a large pageable one requests huge pages, because all of it will be written."""
    made = torch.empty(tuple(sizes), dtype=dtype, device="cpu", pin_memory=pinned)
    if not pinned and made.nbytes >= HUGE_FROM:
        torch.ops.sluice._transfer_advise_huge(made.data_ptr(), made.nbytes)
    return made


def is_small(tensor: torch.Tensor) -> bool:
    """Whether copying a tensor under a guard takes less time than to find out whether it is a file."""
    return span_bytes(tensor) <= _SMALL


def is_large_file(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a mapped file and not small."""
    return not is_small(tensor) and mapping_kind(tensor, 0) != 0


def may_be_file(tensor: torch.Tensor) -> bool:
    """Whether a tensor must be copied under a guard: it is small, or a mapped file."""
    return is_small(tensor) or mapping_kind(tensor, 0) != 0


def packed_like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for a tensor without gaps, in its order of dimensions."""
    sizes = tensor.shape
    if tensor.is_contiguous():
        return torch.empty(sizes, dtype=tensor.dtype, device="cpu")
    return torch.empty_strided(sizes, packed_strides(sizes, memory_order(tensor)), dtype=tensor.dtype, device="cpu")


def copy_in(source: torch.Tensor, packed: torch.Tensor, is_guarded: bool) -> None:
    """Copies a tensor to memory of `packed_like`, under a guard if it may be a file."""
    if not is_guarded:
        packed.copy_(source)
    elif source.numel() and not torch.ops.sluice._transfer_copy(source, packed, True):
        raise TransferError("a file ended while it was read")


def register(tensor: torch.Tensor, read_only: bool | None = None) -> str:
    """Pins a tensor's memory in place; the error text is empty on success."""
    nbytes = span_bytes(tensor)
    kind, writable = torch.ops.sluice._transfer_mapping(tensor.data_ptr(), nbytes)
    # Only pages of a file need it. The driver never returns from pinning writable private pages read-only.
    as_read_only = not writable or (read_only is True and kind == _SHARED_FILE)
    error = str(torch.ops.sluice._transfer_cuda_register(tensor.data_ptr(), nbytes, as_read_only))
    if error and kind == _SHARED_FILE and writable and not as_read_only:
        error += (
            ": a writable mapping of a file, which the driver does not pin on every file system; pin it with "
            "read_only=True if the GPU only reads it, map it privately, or stream it without pinning"
        )
    return error


def unregister(tensor: torch.Tensor) -> None:
    """Undoes one `register` of the same tensor, after all devices have finished their work."""
    torch.ops.sluice._transfer_cuda_unregister(tensor.data_ptr(), span_bytes(tensor))


@contextlib.contextmanager
def host_registered(tensor: torch.Tensor, read_only: bool | None = None) -> Iterator[torch.Tensor]:
    """Pins a host tensor in place while the context lasts; inside, `tensor.is_pinned()`.

    For memory that is streamed repeatedly and was not allocated pinned: pinning takes 0.35 s per GiB. Contexts may be
    nested, and views of a registered tensor may be registered again. Nothing is done without CUDA, or for a tensor that
    is empty or already pinned. The end waits for all devices that the process uses, because their copies may use the
    memory.

    Args:
        tensor: on the host, any strides: all memory from its first to its last element is pinned.
        read_only: whether the GPU only reads the memory; a file that is mapped for writing (`torch.from_file` with
            `shared=True`, `numpy.memmap` in mode "r+") can often be pinned only so. None: whether it cannot be written,
            as a file that is mapped for reading.

    Yields:
        The tensor.

    Raises:
        TypeError: not a tensor, or one without memory of its own.
        ValueError: a tensor that is not on the host.
        RuntimeError: the memory cannot be pinned; the text says why.

    Example:
        >>> import torch, sluice
        >>> x = torch.ones(1000)
        >>> with sluice.host_registered(x):
        ...     y = sluice.stream_map(lambda x: x + 1, x)
        >>> y.sum()
        tensor(2000.)
    """
    check_tensor("host_registered", "tensor", tensor)
    if tensor.device.type != "cpu":
        raise ValueError(f"host_registered: tensor must be on the host, got {tensor.device}")
    check_memory("host_registered", "tensor", tensor)
    if not has_cuda() or tensor.numel() == 0 or tensor.is_pinned():
        yield tensor
        return
    if error := register(tensor, read_only):
        raise RuntimeError(f"host_registered: tensor must be memory that CUDA can page-lock, got {error}")
    owner = Owner()
    try:
        yield tensor
    finally:
        if owner.is_here():  # a child of fork has pinned nothing
            unregister(tensor)
