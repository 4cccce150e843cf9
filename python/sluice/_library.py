"""The compiled libraries: loading them, and what every wrapper shares.

This is the only module that knows how `torch.ops.sluice` comes to be and how its errors look.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch.autograd import forward_ad

_DIRECTORY = pathlib.Path(__file__).parent
_MINIMUM_TORCH = (2, 11)

# What torch's dispatcher says of a tensor that no kernel of ours is for.
_BACKEND = re.compile(r"^Could not run 'sluice::\w+' with arguments from the '(\w+)' backend")

# Why the CUDA kernels are not there, or None where they are.
cuda_unavailable_reason: str | None = None

Result = TypeVar("Result")

# What torch says of an argument that is not what a raw op's schema says.
_WRONG_TYPE = re.compile(
    r"sluice::\w+\(\) Expected a value of type '(?P<wanted>.+)' for argument '(?P<argument>\w+)' .*\n"
    r"Position: .*\nValue: (?P<value>.*)"
)


class _Inquiry(threading.local):
    """What a thread asks the ops for, in place of their results."""

    def __init__(self) -> None:
        self.kind = ""  # "prepare" or "plan": the raw op `_<kind>_<op>` is called, with `options` behind its arguments
        self.options: dict[str, Any] = {}
        self.answers: list[str] = []


inquiry = _Inquiry()


@contextlib.contextmanager
def inquire(kind: str, **options: Any) -> Iterator[list[str]]:
    """While it lasts, the thread's calls compute nothing: they are answered, each in a text of the list."""
    inquiry.kind, inquiry.options, inquiry.answers = kind, options, []
    try:
        yield inquiry.answers
    finally:
        inquiry.kind = ""


# The innermost of torch.func's transforms that runs, or None.
innermost_transform = torch._C._functorch.peek_interpreter_stack


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
    # Read by the kernels at their first chain, where an unknown one would count as the default.
    if (link := os.environ.get("SLUICE_LINK", "1")) not in ("", "0", "1", "always"):
        raise ValueError(f"sluice: SLUICE_LINK must be 0, 1 or always, got {link!r}")
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
    """What the loaded library was built as: version, compiler, CUDA and GPU targets."""
    return str(torch.ops.sluice._build_info())


def instruction_sets() -> list[str]:
    """Those of the CPU that kernels are compiled for, best first."""
    return str(torch.ops.sluice._instruction_sets()).split()


def instruction_set() -> str:
    """The one that the kernels of this process run with."""
    return str(torch.ops.sluice._instruction_set())


def most_operands() -> int:
    """Tensors that a chain may have."""
    return int(torch.ops.sluice._most_operands())


def stage_signatures() -> dict[str, dict[str, float | None]]:
    """Each stage's parameters and their defaults, None where one has to be given, from the table of the ops' parser."""
    signatures: dict[str, dict[str, float | None]] = {}
    for line in str(torch.ops.sluice._stage_signatures()).splitlines():
        name, *parameters = re.split(r"[(),]+", line.removesuffix(")"))
        pairs = (parameter.partition("=") for parameter in parameters if parameter)
        signatures[name] = {key: float(number) if number else None for key, _, number in pairs}
    return signatures


def require_forward_only(op: str, tensors: Sequence[torch.Tensor | None]) -> None:
    """Raises where a gradient, or a tangent of forward mode, would silently be lost."""
    if forward_ad._current_level >= 0:
        _refuse_duals(op, "an input", tensors)
    if not torch.is_grad_enabled():
        return
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            raise RuntimeError(
                f"{op}: sluice is forward-only and an input requires grad; "
                "call it under torch.inference_mode() or torch.no_grad(), or detach() the input"
            )


def loses_gradient(tensors: Iterable[torch.Tensor | None]) -> bool:
    """Whether a call would lose a gradient or a tangent, and `require_forward_only` would raise."""
    has_duals, has_gradients = forward_ad._current_level >= 0, torch.is_grad_enabled()
    if not (has_duals or has_gradients):
        return False
    return any(
        tensor is not None and ((has_gradients and tensor.requires_grad) or (has_duals and _is_dual(tensor)))
        for tensor in tensors
    )


def _is_dual(tensor: torch.Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


def _refuse_duals(op: str, argument: str, tensors: Sequence[torch.Tensor | None]) -> None:
    for tensor in tensors:
        if tensor is not None and _is_dual(tensor):
            raise RuntimeError(f"{op}: sluice has no forward-mode gradients and {argument} is a dual tensor; "
                               "take its primal by torch.autograd.forward_ad.unpack_dual")  # fmt: skip


def check_out(op: str, argument: str, out: torch.Tensor) -> None:
    """Raises unless `out` is a tensor that autograd lets be written: torch's rules for one."""
    check_tensor(op, argument, out)
    if out.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"{op}: sluice is forward-only and {argument} requires grad; detach() it")
    if forward_ad._current_level >= 0:
        _refuse_duals(op, argument, (out,))


def out_target(op: str, out: torch.Tensor, argument: str = "out") -> torch.Tensor:
    """What an out variant is given for `out`: that tensor, or for a lazily negated one memory for the values."""
    check_out(op, argument, out)
    return torch.empty_like(out) if is_negated(out) else out


def out_result(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """`out`, when its target has been written."""
    if target is not out and not inquiry.kind:
        out.copy_(target)
    return out


def is_negated(value: object) -> bool:
    """Whether it is a lazily negated tensor, for which torch hands an op a copy; in traced code none is."""
    return isinstance(value, torch.Tensor) and not torch.compiler.is_dynamo_compiling() and value.is_neg()


def with_its_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or for a lazily negated one its memory as it is."""
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def raise_as_python(op: str, error: RuntimeError, device: torch.device) -> NoReturn:
    """Raises what the C++ checks reported under the type that a Python caller expects.

    Rules about dtypes are `TypeError`, other rules `ValueError`; anything that is not one of sluice's own
    checks comes out as it is.
    """
    text = str(error).split("\nException raised from", 1)[0].strip()
    if given := _WRONG_TYPE.match(text):
        raise TypeError(f"{op}: {given['argument']} must be of type {given['wanted']}, got {given['value']}") from None
    if text.startswith("torch's own part of it failed"):  # which does not know for whom it runs
        raise RuntimeError(f"{op}: {text}") from None
    if not text.startswith(f"{op}: "):
        raise error
    if device.type == "cuda" and cuda_unavailable_reason is not None:
        raise RuntimeError(f"{op}: no CUDA kernels, because {cuda_unavailable_reason}") from None
    if ": out of memory: " in text:
        kind: type[Exception] = torch.OutOfMemoryError if device.type == "cuda" else MemoryError
        raise kind(text) from None
    if " must have dtype " in text:
        raise TypeError(text) from None
    if " must " in text:
        raise ValueError(text) from None
    raise error


def call(op: str, input: torch.Tensor, function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Calls a raw op and gives its errors their Python types. Traced code calls the op as it is."""
    if torch.compiler.is_compiling():
        return function(*args, **kwargs)
    return call_eagerly(op, input, function, args, kwargs)


def call_eagerly(
    op: str, input: torch.Tensor, function: Callable[..., Result], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Result:
    """The same where nothing is traced."""
    try:
        if inquiry.kind:
            return cast("Result", _inquire(function, args, kwargs))
        return function(*args, **kwargs)
    except NotImplementedError as error:
        if input.device.type == "cuda" and cuda_unavailable_reason is not None:
            raise RuntimeError(f"{op}: no CUDA kernels, because {cuda_unavailable_reason}") from None
        if backend := _BACKEND.search(str(error)):
            rule = "tensors must be strided ones on the CPU or a CUDA device"
            raise TypeError(f"{op}: {rule}, got one of torch's backend {backend[1]}") from None
        raise error
    except RuntimeError as error:
        raise_as_python(op, error, input.device)


def _inquire(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = function.__name__.partition(".")[0].removesuffix("_out")  # of an op, or of its overload
    if name.startswith("_check_"):
        return function(*args, **kwargs)
    question = getattr(torch.ops.sluice, f"_{inquiry.kind}_{name}", None)
    if question is not None:  # the states of a causal convolution have no kernel to choose
        inquiry.answers.append(str(question(*args, **kwargs, **inquiry.options)))
    return args[0]


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Whether a subclass or a mode decides what the ops do with a tensor."""
    is_plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return not is_plain or torch._C._len_torch_dispatch_stack() > 0


def check_tensor(op: str, argument: str, value: object) -> None:
    """Raises `TypeError` unless `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {argument} must be a torch.Tensor, got {type(value).__name__}")
