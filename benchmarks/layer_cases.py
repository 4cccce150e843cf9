"""Layers of transformers around a short causal convolution, built with a model's sizes, run and observed.

transformers chooses a model's functions when the model's module is imported, so a process has one state:

    before    transformers' own torch code, and no causal_conv1d package
    after     after `sluice.compat.causal_conv1d.install()`

In both, the scan after the convolution is transformers' torch code, where mamba_ssm and fla are not installed.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch

from sluice.bench import DTYPES
from sluice.bench.check import OpCalls, WrongResultError, relative_error

STATES = ("before", "after")
CONVOLUTIONS = ("causal_conv1d_fn", "causal_conv1d_update")  # for the prompt, and for one more token
# The error of `after` may be this many times that of `before`, which is transformers' own in the same dtype.
_FACTOR, _TINY = 3.0, 1e-6
# With a larger error of `before` the comparison means nothing. Taps in a wrong order give 0.8 and more.
_LARGEST_BEFORE = 5e-2


class Kind(NamedTuple):
    """A layer: its path below transformers.models, its scans, parallel to `CONVOLUTIONS`, real and tiny sizes."""

    module: str
    name: str
    config: str
    scans: tuple[str, str]
    sizes: dict[str, Any]
    small: dict[str, Any]

    def modeling(self) -> ModuleType:
        return importlib.import_module(f"transformers.models.{self.module}.modeling_{self.module}")


KINDS = {
    "mamba2": Kind(  # state-spaces/mamba2-2.7b
        "mamba2", "Mamba2Mixer", "Mamba2Config", ("mamba2_chunk_scan", "mamba2_selective_state_update"),
        {"hidden_size": 2560, "num_heads": 80, "head_dim": 64, "state_size": 128, "n_groups": 1, "conv_kernel": 4,
         "chunk_size": 256},
        {"hidden_size": 32, "num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 1, "conv_kernel": 4,
         "chunk_size": 8},
    ),
    "qwen3_next": Kind(  # Qwen/Qwen3-Next-80B-A3B
        "qwen3_next", "Qwen3NextGatedDeltaNet", "Qwen3NextConfig",
        ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"),
        {"hidden_size": 2048, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention"]},
        {"hidden_size": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
         "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention"]},
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """A prompt of `tokens` for each of `batch` sequences, then `new` tokens one by one. `chunk_size` is Mamba2's."""

    kind: str
    dtype: str
    batch: int
    tokens: int
    new: int = 0
    small: bool = False
    chunk_size: int | None = None

    @property
    def label(self) -> str:
        what = f"{self.batch} x {self.tokens}" + (f", then {self.new} tokens" if self.new else "")
        return f"{KINDS[self.kind].name} {self.dtype}, {what}"


# --- a process and its state ------------------------------------------------------------------------------------------
def environment(**more: str) -> dict[str, str]:
    """The environment of a process that has a state: this one's without the hub, and `more`."""
    return os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "USE_HUB_KERNELS": "0"} | more


def enter(state: str) -> None:
    """Gives this process its state, before any model's module is imported.

    Raises:
        RuntimeError: the package itself is installed; a model's module is imported already; or transformers' layers do
            not call functions of their modules, which they do in 5.17 and later.
    """
    from sluice.compat import causal_conv1d as stand_in

    if importlib.util.find_spec("causal_conv1d") is not None:
        raise RuntimeError("layer_cases: causal_conv1d must not be installed, got one")
    if state == "after" and (found := stand_in.install().unchanged):
        raise RuntimeError(f"layer_cases: install() must run before models' modules are imported, got {found}")
    for kind in KINDS.values():
        if missing := [name for name in (*CONVOLUTIONS, *kind.scans) if not hasattr(kind.modeling(), name)]:
            version = importlib.import_module("transformers").__version__
            raise RuntimeError(f"layer_cases: {kind.name} must call {missing} (transformers 5.17), got {version}")


# --- a layer ----------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Subject:
    """A layer of random weights with its inputs, the same in each process: (B, L, hidden), and (new, B, 1, hidden)."""

    case: Case
    config: Any
    layer: torch.nn.Module
    prompt: torch.Tensor
    tokens: torch.Tensor

    @property
    def modeling(self) -> ModuleType:
        return KINDS[self.case.kind].modeling()

    @property
    def channels(self) -> int:
        """The convolution's input channels."""
        (found,) = (each.in_channels for each in self.layer.modules() if isinstance(each, torch.nn.Conv1d))
        return found

    def cache(self) -> Any:
        return importlib.import_module("transformers").DynamicCache(config=self.config)

    def prefill(self, cache: Any = None) -> torch.Tensor:
        """The layer's result for the prompt; fills `cache`, or a new cache."""
        return self.layer(self.prompt, cache_params=self.cache() if cache is None else cache)

    def step(self, cache: Any, token: torch.Tensor) -> torch.Tensor:
        return self.layer(token, cache_params=cache)

    def outputs(self) -> dict[str, torch.Tensor]:
        """Results of the prompt and of the new tokens, and the convolution's state after them, on the host."""
        cache = self.cache()
        found = {"prefill": self.prefill(cache).cpu()}
        if len(self.tokens):
            found["decode"] = torch.cat([self.step(cache, token) for token in self.tokens], dim=1).cpu()
        return found | {"state": cache.layers[0].conv_states[0].cpu()}

    def counted_outputs(self, state: str) -> dict[str, torch.Tensor]:
        """`outputs` of a process in `state`, with the calls of sluice's ops counted.

        Raises:
            WrongResultError: after `install()`, sluice's ops were not called once for the prompt and once for each
                token; before it, they were called.
        """
        with OpCalls() as calls:
            found = self.outputs()
        got, expected = [calls.prefill, calls.decode], [1, len(self.tokens)] if state == "after" else [0, 0]
        if got != expected:
            raise WrongResultError(f"{self.case.label}, {state}: sluice's ops must be called {expected}, got {got}")
        return found

    def reference(self) -> dict[str, torch.Tensor]:
        """`outputs` in float64, except for the scan and the norm in float32; stored in float32."""
        double = dataclasses.replace(
            self,
            layer=copy.deepcopy(self.layer).double(),
            prompt=self.prompt.double(),
            tokens=self.tokens.double(),
        )
        # cuDNN would search algorithms for a second to run a convolution in float64 once.
        with torch.backends.cudnn.flags(enabled=False):
            return {name: value.float() for name, value in double.outputs().items()}


def make(case: Case, device: torch.device | str) -> Subject:
    kind = KINDS[case.kind]
    modeling, sizes = kind.modeling(), dict(kind.small if case.small else kind.sizes)
    if case.chunk_size is not None and "chunk_size" in sizes:
        sizes["chunk_size"] = case.chunk_size
    config = getattr(modeling, kind.config)(num_hidden_layers=1, **sizes)
    torch.manual_seed(11)
    layer = getattr(modeling, kind.name)(config, layer_idx=0).eval()
    prompt = torch.randn(case.batch, case.tokens, config.hidden_size)
    tokens = torch.randn(case.new, case.batch, 1, config.hidden_size)
    to = functools.partial(torch.Tensor.to, device=device, dtype=DTYPES[case.dtype])
    return Subject(case, config, layer.to(device, DTYPES[case.dtype]), to(prompt), to(tokens))


# --- the calls within a layer -----------------------------------------------------------------------------------------
def _apart(value: Any) -> Any:
    """A tensor with the same strides in a copy of its whole storage; other values unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    elements = value.untyped_storage().nbytes() // value.element_size()
    return (
        value.as_strided((elements,), (1,), 0).clone().as_strided(value.shape, value.stride(), value.storage_offset())
    )


@contextlib.contextmanager
def watched(module: ModuleType, name: str) -> Iterator[Sequence[Callable[[], Any]]]:
    """Collects the calls of the module's function; each can be repeated on copies of its arguments."""
    function = getattr(module, name)
    calls: list[Callable[[], Any]] = []

    def watching(*args: Any, **options: Any) -> Any:
        copies = [_apart(value) for value in args], {word: _apart(value) for word, value in options.items()}
        calls.append(functools.partial(function, *copies[0], **copies[1]))
        return function(*args, **options)

    setattr(module, name, watching)
    try:
        yield calls
    finally:
        setattr(module, name, function)


def parts(subject: Subject, cache: Any = None) -> dict[str, Callable[[], Any]]:
    """The convolution and the scan of a prefill, or of a step with `cache`, as separate calls."""
    phase = 0 if cache is None else 1
    names = {"conv": CONVOLUTIONS[phase], "scan": KINDS[subject.case.kind].scans[phase]}
    with contextlib.ExitStack() as stack:
        calls = {part: stack.enter_context(watched(subject.modeling, name)) for part, name in names.items()}
        if cache is None:
            subject.prefill()
        else:
            subject.step(cache, subject.tokens[0])
    if counts := {part: len(found) for part, found in calls.items() if len(found) != 1}:
        raise RuntimeError(f"{subject.case.label}: the layer must call convolution and scan once, got {counts}")
    return {part: found[0] for part, found in calls.items()}


# --- before and after -------------------------------------------------------------------------------------------------
Outputs = Mapping[str, torch.Tensor]


def compare(label: str, before: Outputs, after: Outputs, reference: Outputs) -> dict[str, dict[str, float]]:
    """The relative L2 errors of each output, before and after.

    Raises:
        WrongResultError: an error of `after` is over three times that of `before`, or `before` is too wrong to compare.
    """
    errors = {
        state: {name: relative_error(found[name], value) for name, value in reference.items()}
        for state, found in zip(STATES, (before, after), strict=True)
    }
    for name, of_before in errors["before"].items():
        if not of_before <= _LARGEST_BEFORE:
            raise WrongResultError(
                f"{label}: {name}: before, the error must be at most {_LARGEST_BEFORE}, got {of_before:g}"
            )
        limit = _FACTOR * of_before + _TINY
        if not errors["after"][name] <= limit:
            raise WrongResultError(
                f"{label}: {name}: after, the error must be at most {limit:g}, got {errors['after'][name]:g}"
            )
    return errors
