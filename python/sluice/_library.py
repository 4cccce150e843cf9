"""The compiled libraries: loading them, and what every wrapper shares.

Only this module knows how `torch.ops.sluice` is loaded and how its errors look.
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

# The message of torch's dispatcher for a tensor that no kernel of ours takes.
_BACKEND = re.compile(r"^Could not run 'sluice::\w+' with arguments from the '(\w+)' backend")

# Why the CUDA kernels are missing; None if they are loaded.
cuda_unavailable_reason: str | None = None

Result = TypeVar("Result")

# The message of torch for an argument that does not match a raw op's schema.
_WRONG_TYPE = re.compile(
    r"sluice::\w+\(\) Expected a value of type '(?P<wanted>.+)' for argument '(?P<argument>\w+)' .*\n"
    r"Position: .*\nValue: (?P<value>.*)"
)


class _CallMode(threading.local):
    """The thread's mode: whether its op calls compute, or only plan, link or explain."""

    def __init__(self) -> None:
        self.action = ""  # "prepare" or "plan": calls the raw op `_<action>_<op>`, with `options` after its arguments
        self.options: dict[str, Any] = {}
        self.texts: list[str] = []


current_mode = _CallMode()


@contextlib.contextmanager
def call_mode(action: str, **options: Any) -> Iterator[list[str]]:
    """Inside it the thread's calls compute nothing; each adds a text to the list."""
    current_mode.action, current_mode.options, current_mode.texts = action, options, []
    try:
        yield current_mode.texts
    finally:
        current_mode.action = ""


# The innermost running transform of torch.func, or None.
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
    # The kernels read it at their first chain and would take an unknown value as the default.
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


def require_forward_only(op: str, tensors: Sequence[torch.Tensor | None]) -> None:
    """Raises if a gradient or a forward-mode tangent would silently be lost."""
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
    """Raises unless `out` is a tensor that autograd allows to be written, by torch's rules."""
    check_tensor(op, argument, out)
    if out.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"{op}: sluice is forward-only and {argument} requires grad; detach() it")
    if forward_ad._current_level >= 0:
        _refuse_duals(op, argument, (out,))


def out_target(op: str, out: torch.Tensor, argument: str = "out") -> torch.Tensor:
    """The tensor that an out variant writes: `out`, or memory for the values of a lazily negated `out`."""
    check_out(op, argument, out)
    return torch.empty_like(out) if is_negated(out) else out


def out_result(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """`out`, after its target has been written."""
    if target is not out and not current_mode.action:
        out.copy_(target)
    return out


def is_negated(value: object) -> bool:
    """Whether it is a lazily negated tensor, which torch passes to an op as a copy; never in traced code."""
    return isinstance(value, torch.Tensor) and not torch.compiler.is_dynamo_compiling() and value.is_neg()


def with_its_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or for a lazily negated one its memory as it is."""
    return torch._neg_view(tensor) if tensor.is_neg() else tensor


def raise_as_python(op: str, error: RuntimeError, device: torch.device) -> NoReturn:
    """Raises what the C++ checks reported under the type that a Python caller expects.

    Rules about dtypes are `TypeError`, other rules `ValueError`; errors of other code are raised unchanged.
    """
    text = str(error).split("\nException raised from", 1)[0].strip()
    if given := _WRONG_TYPE.match(text):
        raise TypeError(f"{op}: {given['argument']} must be of type {given['wanted']}, got {given['value']}") from None
    if text.startswith("a torch op that it calls failed"):  # which does not know the op that it runs for
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
        if has_mesh(input):
            load_sharding_rules()
        return function(*args, **kwargs)
    return call_eagerly(op, input, function, args, kwargs)


def call_eagerly(
    op: str,
    input: torch.Tensor,
    function: Callable[..., Result],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    has_rules: bool = False,
) -> Result:
    """The same where nothing is traced. `has_rules`: DTensor's have been loaded for this call."""
    try:
        if current_mode.action:
            return cast("Result", _in_call_mode(function, args, kwargs))
        return function(*args, **kwargs)
    except NotImplementedError as error:
        if input.device.type == "cuda" and cuda_unavailable_reason is not None:
            raise RuntimeError(f"{op}: no CUDA kernels, because {cuda_unavailable_reason}") from None
        if backend := _BACKEND.search(str(error)):
            rule = "tensors must be strided, on the CPU or a CUDA device"
            raise TypeError(f"{op}: {rule}, got one of torch's backend {backend[1]}") from None
        if has_rules or not has_mesh(input):
            raise error
        load_sharding_rules()
        return call_eagerly(op, input, function, args, kwargs, has_rules=True)
    except RuntimeError as error:
        raise_as_python(op, error, input.device)


# The package adds what registers them, because the rules are above the ops.
sharding_rules: list[Callable[[], object]] = []


def has_mesh(tensor: object) -> bool:
    """Whether it is a DTensor, whose module takes a second to import."""
    return hasattr(tensor, "device_mesh")


def load_sharding_rules() -> None:
    """Registers sluice's rules for DTensors. Traced code may call it."""
    for load in sharding_rules:
        load()


def _in_call_mode(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = function.__name__.partition(".")[0].removesuffix("_out")  # of an op, or of its overload
    if name.startswith("_check_"):
        return function(*args, **kwargs)
    raw_op = getattr(torch.ops.sluice, f"_{current_mode.action}_{name}", None)
    if raw_op is not None:  # the states of a causal convolution have no kernel to choose
        current_mode.texts.append(str(raw_op(*args, **kwargs, **current_mode.options)))
    return args[0]


def has_own_dispatch(tensor: torch.Tensor) -> bool:
    """Whether a subclass or a mode decides what the ops do with a tensor."""
    is_plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return not is_plain or torch._C._len_torch_dispatch_stack() > 0


def check_tensor(op: str, argument: str, value: object) -> None:
    """Raises `TypeError` unless `value` is a tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {argument} must be a torch.Tensor, got {type(value).__name__}")
