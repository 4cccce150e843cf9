"""Watches the code that runs while forward is traced: its effects, which are refused, and the names it reads."""

from __future__ import annotations

import contextlib
import copy
import dis
import functools
import gc
import logging
import pathlib
import sys
import types
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import get_overridable_functions

_LIBRARIES = (str(pathlib.Path(torch.__file__).parent) + "/", str(pathlib.Path(__file__).parents[1]) + "/")
_STANDARD = str(pathlib.Path(functools.__file__).parent) + "/"
_HARMLESS_FILES = frozenset((
    "_collections_abc", "abc", "collections/__init__", "collections/abc", "dataclasses", "enum", "functools", "inspect",
    "logging/__init__", "numbers", "operator", "types", "typing", "warnings",
))  # fmt: skip
_EFFECTS = {"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR"}
_CONTEXTS = {"WITH_EXCEPT_START", "SETUP_WITH", "BEFORE_WITH"}
# The class whose wrapper around forward, or around __call__, acts only in training.
CHECKPOINTING = ("transformers.modeling_layers", "GradientCheckpointingLayer")
# Names whose value may differ at another call.
_STATE = frozenset((
    "is_grad_enabled", "is_inference_mode_enabled", "is_inference", "is_autocast_enabled", "get_autocast_dtype",
    "is_autocast_cpu_enabled", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype", "is_compiling", "is_exporting",
    "is_dynamo_compiling", "is_torchdynamo_compiling", "is_tracing", "is_fx_tracing", "is_scripting_or_tracing",
    "is_torch_fx_proxy", "is_fx_symbolic_tracing", "set_grad_enabled", "get_default_dtype", "get_rng_state",
    "initial_seed", "is_tracing_state", "is_jit_tracing", "__dict__", "_modules", "_parameters", "_buffers",
    "children", "named_children", "modules", "named_modules", "parameters", "named_parameters", "buffers",
    "named_buffers", "state_dict", "get_submodule", "get_parameter", "get_buffer", "requires_grad", "grad_fn", "item",
    "tolist", "numpy", "data_ptr", "is_leaf", "_version",
))  # fmt: skip
_BUILTINS = frozenset((
    "abs", "all", "any", "bool", "callable", "divmod", "enumerate", "filter", "float", "format", "getattr", "hasattr",
    "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "pow", "range", "repr",
    "reversed", "round", "sorted", "str", "sum", "tuple", "type", "zip", "__build_class__",
))  # fmt: skip
_PLAIN_OWNERS = (list, dict, tuple, str, int, float, bool, set, frozenset, bytes, types.NoneType, torch.Size)
_PURE_MODULES = ("math", "_operator", "itertools", "_functools", "_collections_abc")
# Calls of their C functions are not always observed.
_CHANGING_MODULES = frozenset(("random", "numpy", "time", "datetime", "os", "secrets", "scipy", "sys", "cupy"))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice, range)


class Refused(Exception):  # noqa: N818
    """The reason why something is not folded."""


class Code(NamedTuple):
    """The reads and effects that a code object may have."""

    names: frozenset[str]  # names of attributes that it may read
    asked: frozenset[str]  # names in strings, as for hasattr
    reads: frozenset[str]  # globals
    effect: str


def is_library(code: CodeType) -> bool:
    """Whether it is code of torch or of sluice."""
    return _is_librarys(code.co_filename)


@functools.lru_cache(maxsize=4096)
def _is_librarys(file: str) -> bool:  # a code object's hash takes longer
    return file.startswith((*_LIBRARIES, "<frozen"))


@functools.lru_cache(maxsize=4096)
def described(code: CodeType) -> Code:
    """The reads and effects that the code may have."""
    reads, effect = set(), ""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            reads.add(str(instruction.argval))
        elif instruction.opname in _EFFECTS:
            effect = "forward stores into attributes or elements"
        elif instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in code.co_freevars:
            effect = "forward stores into variables of an outer function"
        elif instruction.opname in _CONTEXTS:
            effect = "forward has a with statement"
    texts = frozenset(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    return Code(frozenset(code.co_names), texts, frozenset(reads), effect)


class Observed:
    """The reads and effects of the code that ran while it was watching."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.asks = False  # whether names may be computed, as for getattr
        self.asked: set[str] = set()
        self.globals: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self.codes: dict[int, CodeType] = {}
        self._reason = ""
        self._running: Any = None  # a C function that forward called

    @property
    def is_in_torch(self) -> bool:
        """Whether forward is in a C function of torch, which inspects its arguments."""
        return self._running is not None and _is_torchs(self._running)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watches this thread.

        Raises:
            Refused: the watched code has effects, or depends on more than the module and its arguments.
        """
        get_overridable_functions()  # torch builds the table at its first use, in many calls
        former, collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # finalizers are not calls of forward
        sys.setprofile(self._watch)
        try:
            yield
        finally:
            _profile_again(former)
            if collects:
                gc.enable()
        for variables, name, then in self.globals.values():
            now = variables.get(name)
            if isinstance(then, (list, dict, set)) and len(now) != len(then):  # type: ignore[arg-type]
                now.clear()  # type: ignore[union-attr]
                (now.extend if isinstance(now, list) else now.update)(then)  # type: ignore[union-attr]
                self._reason = f"forward changes the global {name}"
        if self._reason:
            raise Refused(self._reason)

    def _watch(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if is_library(code):
            return
        self._running = argument if event == "c_call" else None
        if _is_standard(code):
            if event == "call" and _is_users(frame.f_back) and not _is_harmless_file(code):
                self._refuse(f"forward calls {code.co_name} of {pathlib.Path(code.co_filename).stem}")
        elif event == "call" and id(code) not in self.codes:
            self.codes[id(code)] = code
            self._enter(frame, described(code))
        elif event == "c_call" and not _is_harmless(argument):
            self._refuse(f"forward calls {getattr(argument, '__qualname__', argument)}")

    def _enter(self, frame: FrameType, code: Code) -> None:
        self.names |= code.names | code.asked
        if code.reads & {"hasattr", "getattr"}:
            self.asked |= code.asked
            self.asks = True
        is_wrapper = getattr(frame.f_code, "co_qualname", "").startswith(CHECKPOINTING[1] + ".")
        if is_wrapper and frame.f_globals.get("__name__") == CHECKPOINTING[0]:
            return  # names such as `training` are compared anyway
        if code.effect:
            self._refuse(code.effect)
        for name in sorted(code.names & _STATE):
            self._refuse(f"forward reads {name}")
        for name in sorted(code.reads):
            if name not in frame.f_globals:
                continue
            value = frame.f_globals[name]
            if is_plain(value):
                self.globals[id(frame.f_globals), name] = (frame.f_globals, name, copy.deepcopy(value))
            elif not _is_constant(value):
                self._refuse(f"forward reads the global {name}, whose changes would not be seen")

    def add(self, other: Observed) -> None:
        """Adds everything that another one saw."""
        self.names |= other.names
        self.asked |= other.asked
        self.asks = self.asks or other.asks
        self.codes.update(other.codes)
        self.globals.update(other.globals)

    def _refuse(self, reason: str) -> None:
        """Ends the trace before the code acts."""
        self._reason = self._reason or reason
        raise Refused(self._reason)


def _profile_again(former: Any) -> None:
    if former is None or callable(former):
        sys.setprofile(former)
    else:
        sys.setprofile(None)
        former.enable()  # cProfile's profiler, which is not a function


def _is_standard(code: CodeType) -> bool:
    """Whether it is code of Python's standard library; torch calls it too."""
    return code.co_filename.startswith(_STANDARD) and "site-packages" not in code.co_filename


def _is_harmless_file(code: CodeType) -> bool:
    return code.co_filename.removeprefix(_STANDARD).partition(".")[0] in _HARMLESS_FILES


def _is_users(frame: FrameType | None) -> bool:
    return frame is not None and not is_library(frame.f_code) and not _is_standard(frame.f_code)


def is_plain(value: Any) -> bool:
    """Whether a value can be compared with an earlier copy."""
    if isinstance(value, _PLAIN):
        return True
    if type(value) in (list, tuple, set, frozenset):
        return all(map(is_plain, value))
    return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def _is_constant(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] not in _CHANGING_MODULES
    return callable(value) or isinstance(value, (logging.Logger, torch.dtype))


def _is_torchs(function: Any) -> bool:
    name = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
    return str(name).split(".")[0] == "torch"


def _is_harmless(function: Any) -> bool:
    """Whether a C function has no effects and returns the same at each call."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, types.ModuleType):
        name = owner.__name__
        if name == "builtins":
            return function.__name__ in _BUILTINS
        return name in _PURE_MODULES or name.startswith("torch")
    if isinstance(owner, _PLAIN_OWNERS):
        return True
    kind = owner if isinstance(owner, type) else type(owner)
    return kind.__module__.split(".")[0] in ("torch", "builtins") or kind in _PLAIN_OWNERS
