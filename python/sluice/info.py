"""`info`: versions, devices and what is loaded."""

from __future__ import annotations

import json
import platform
from typing import Any

import torch

from . import _library

__version__ = "0.1.0"


def info() -> dict[str, Any]:
    """Facts for a bug report: versions, the build, the CPU's code, whether CUDA kernels are loaded, the devices.

    Example:
        >>> import sluice
        >>> sorted(sluice.info())
        ['build', 'cpu', 'cuda_kernels', 'devices', 'linking', 'python', 'torch', 'torch_cuda', 'version']
    """
    devices: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices.append(
                {
                    "name": properties.name,
                    "compute_capability": f"{properties.major}.{properties.minor}",
                    "code": code_of(properties.major, properties.minor),
                    "multiprocessors": properties.multi_processor_count,
                    "memory_gib": round(properties.total_memory / 2**30, 1),
                    **balance(properties),
                    **overlap_abilities(index),
                }
            )
    return {
        "version": __version__,
        "build": _library.build_info(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cpu": {"instruction_set": _library.instruction_set(), "threads": torch.get_num_threads()},
        "cuda_kernels": _library.cuda_unavailable_reason or "loaded",
        "devices": devices,
        "linking": linking(),
    }


def code_of(major: int, minor: int) -> str:
    """The architecture of the library's code that a GPU runs: "90a"; "80, PTX" if the driver compiles it; or ""."""
    return str(torch.ops.sluice._code_of(10 * major + minor))


def balance(properties: Any) -> dict[str, float]:
    """The peak arithmetic and bandwidth of a GPU: `flops_per_byte` is the first over the second.

    A kernel with fewer operations per byte is bound by memory. `fp32_tflops` counts FMA at the highest clock, in
    10^12 operations per second; `memory_tbps` is device memory's, in 10^12 bytes per second.

    Args:
        properties: what `torch.cuda.get_device_properties` returns.

    Returns:
        The three numbers; none if torch does not report the clocks.
    """
    if not all(getattr(properties, name, 0) for name in ("clock_rate", "memory_clock_rate", "memory_bus_width")):
        return {}
    lanes = 64 if (properties.major, properties.minor) == (8, 0) else 128  # FMA per SM and cycle
    tflops = 2 * lanes * properties.multi_processor_count * properties.clock_rate * 1e3 / 1e12
    tbps = 2 * properties.memory_clock_rate * 1e3 * properties.memory_bus_width / 8 / 1e12  # twice a cycle
    return {
        "fp32_tflops": round(tflops, 1),
        "memory_tbps": round(tbps, 2),
        "flops_per_byte": round(tflops / tbps, 1),
    }


def overlap_abilities(index: int) -> dict[str, Any]:
    """A GPU's abilities to overlap: its `copy_engines`, kernels during copies, and concurrent kernels."""
    if not hasattr(torch.ops.sluice, "_transfer_cuda_abilities"):
        return {}
    found = json.loads(torch.ops.sluice._transfer_cuda_abilities(index))
    engines = int(found["copy_engines"])
    return {
        "copy_engines": engines,
        "overlaps_copies": engines > 0,
        "concurrent_kernels": bool(found["concurrent_kernels"]),
        "reads_pageable_memory": bool(found["pageable_memory_access"]),
        "host_register_read_only": bool(found["host_register_read_only"]),
    }


def linking() -> dict[str, Any]:
    """How chains are linked into kernels in this process: the libraries found, the mode, and what was done so far.

    `unavailable` says why nothing can be linked, and is empty if linking works; `library_builds` identifies the builds
    of NVRTC and nvJitLink. `linked_launches` and `interpreted_launches` count kernels with chains. `compiled`,
    `read_from_disk` and `read_from_library` count linked kernels by their origin; kernels from the library are among
    its `prelinked` kernels. `failed` links are not tried again; `postponed` links, usually for lack of memory, are.
    `linked_kernels` are loaded, at most `linked_limit`, with `linked_bytes` in all, for the lifetime of the process;
    further chains run interpreted. A problem of fewer than `small_below` elements whose kernel is not prelinked
    is interpreted for its first `calls_of_small` calls. `cache_problem` says why linked kernels are not
    kept in `cache_directory`, and is empty if they are.
    """
    if not hasattr(torch.ops.sluice, "_link_info"):
        return {"unavailable": _library.cuda_unavailable_reason}
    found: dict[str, Any] = json.loads(torch.ops.sluice._link_info())
    return found
