"""The compiled libraries: how they are loaded, and what they say about themselves."""

from __future__ import annotations

import os
import pathlib
import re

import torch

_DIRECTORY = pathlib.Path(__file__).parent
_MINIMUM_TORCH = (2, 11)

# Why the CUDA kernels are missing; None if they are loaded.
cuda_unavailable_reason: str | None = None


def _torch_version() -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _versions() -> str:
    return f"torch {torch.__version__} (CUDA {torch.version.cuda or 'none'})"


def _load(name: str) -> None:
    path = _DIRECTORY / f"{name}.so"
    if not path.exists():
        raise ImportError(f"sluice: {path} is missing; build it with `make build` or install the wheel")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"sluice: {name}.so does not load under {_versions()}; it is built for torch >= "
            f"{'.'.join(map(str, _MINIMUM_TORCH))} on x86-64 Linux: {error}"
        ) from error


def load() -> None:
    """Loads `_C`, then `_C_cuda` where it was built; called once, by the package's import."""
    global cuda_unavailable_reason
    if _torch_version() < _MINIMUM_TORCH:
        raise ImportError(f"sluice needs torch >= {'.'.join(map(str, _MINIMUM_TORCH))}, got {_versions()}")
    # The kernels read it at their first chain and would take an unknown value as the default.
    if (link := os.environ.get("SLUICE_LINK", "1")) not in ("", "0", "1", "always"):
        raise ValueError(f"sluice: SLUICE_LINK must be 0, 1 or always, got {link!r}")
    if (dense := os.environ.get("SLUICE_DENSE", "")) not in ("", "portable", "torch"):  # plans read it
        raise ValueError(f"sluice: SLUICE_DENSE must be portable or torch, got {dense!r}")
    least = 48 << 10  # bytes that every GPU has
    memory = os.environ.get("SLUICE_SHARED_MEMORY", "")
    if memory and not (memory.isdecimal() and int(memory) >= least):
        raise ValueError(f"sluice: SLUICE_SHARED_MEMORY must be a number of bytes, {least} at least, got {memory!r}")
    if hasattr(torch.ops.sluice, "_build_info"):
        raise ImportError("sluice: another copy of the library is loaded in this process already")
    _load("_C")
    names = instruction_sets()
    if (wanted := os.environ.get("SLUICE_CPU", "")) not in ("", *names):
        raise ValueError(f"sluice: SLUICE_CPU must be {' or '.join(names)} on this machine, got {wanted!r}")
    if not (_DIRECTORY / "_C_cuda.so").exists():
        cuda_unavailable_reason = "sluice was built without CUDA (SLUICE_WITH_CUDA=0, or no nvcc was found)"
        return
    if os.environ.get("SLUICE_LOAD_CUDA", "1") == "0":
        cuda_unavailable_reason = "SLUICE_LOAD_CUDA=0 is set"
        return
    try:
        _load("_C_cuda")  # CPU-only builds of torch load it too: it asks them for nothing until a kernel runs
    except ImportError as error:
        cuda_unavailable_reason = str(error)
        return
    if torch.version.cuda is None:
        cuda_unavailable_reason = f"{_versions()} has no CUDA"


def build_info() -> str:
    """The loaded library's build: version, compiler, CUDA and GPU targets."""
    return str(torch.ops.sluice._build_info())


def instruction_sets() -> list[str]:
    """The instruction sets that this CPU has and kernels are compiled for, best first."""
    return str(torch.ops.sluice._instruction_sets()).split()


def instruction_set() -> str:
    """The instruction set of this process's kernels."""
    return str(torch.ops.sluice._instruction_set())


def most_operands() -> int:
    """The most tensors that a chain may have."""
    return int(torch.ops.sluice._most_operands())


def stage_signatures() -> dict[str, dict[str, float | None]]:
    """Each stage's parameters and their defaults, None for a required one, from the table of the ops' parser."""
    signatures: dict[str, dict[str, float | None]] = {}
    for line in str(torch.ops.sluice._stage_signatures()).splitlines():
        name, *parameters = re.split(r"[(),]+", line.removesuffix(")"))
        pairs = (parameter.partition("=") for parameter in parameters if parameter)
        signatures[name] = {key: float(number) if number else None for key, _, number in pairs}
    return signatures
