"""Activation modules: those of `sluice.stages.from_module`, and Snakes recognised by their forward's code."""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import pow, sin

from .. import stages
from ..chain import Chain


def chain_of_module(module: torch.nn.Module) -> Chain | None:
    """The chain of a module in its current state; None if it is not a known activation in eval mode."""
    own = _snake_kind(type(module))  # type: ignore[arg-type]
    if own is not None:
        return own(module)
    try:
        return stages.from_module(module)
    except TypeError:
        return None


# Snake forwards as transformers and BigVGAN write them. A class is a Snake if its forward has the same code.
def _dac(self: Any, hidden_states: Any) -> Any:
    shape = hidden_states.shape
    hidden_states = hidden_states.reshape(shape[0], shape[1], -1)
    hidden_states = hidden_states + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * hidden_states).pow(2)
    hidden_states = hidden_states.reshape(shape)
    return hidden_states  # noqa: RET504


def _qwen(self: Any, hidden_states: Any) -> Any:
    alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
    beta = self.beta.unsqueeze(0).unsqueeze(-1)
    alpha = torch.exp(alpha)
    beta = torch.exp(beta)
    hidden_states = hidden_states + (1.0 / (beta + self.no_div_by_zero)) * torch.pow(
        torch.sin(hidden_states * alpha), 2
    )
    return hidden_states  # noqa: RET504


def _bigvgan_snake(self: Any, x: Any) -> Any:
    alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
    if self.alpha_logscale:
        alpha = torch.exp(alpha)
    x = x + (1.0 / (alpha + self.no_div_by_zero)) * pow(sin(x * alpha), 2)
    return x  # noqa: RET504


def _bigvgan_snake_beta(self: Any, x: Any) -> Any:
    alpha = self.alpha.unsqueeze(0).unsqueeze(-1)
    beta = self.beta.unsqueeze(0).unsqueeze(-1)
    if self.alpha_logscale:
        alpha = torch.exp(alpha)
        beta = torch.exp(beta)
    x = x + (1.0 / (beta + self.no_div_by_zero)) * pow(sin(x * alpha), 2)
    return x  # noqa: RET504


_TEMPLATES: tuple[tuple[Any, Callable[[Any], Chain]], ...] = (
    (_dac, lambda m: stages.snake(stages._per_channel(m.alpha))),
    (_qwen, lambda m: stages._snake_of(m, m.beta, True)),
    (_bigvgan_snake, lambda m: stages._snake_of(m, None, m.alpha_logscale)),
    (_bigvgan_snake_beta, lambda m: stages._snake_of(m, m.beta, m.alpha_logscale)),
)


@functools.lru_cache(maxsize=1024)
def _snake_kind(kind: type) -> Callable[[Any], Chain] | None:
    forward = getattr(kind, "forward", None)
    if not isinstance(forward, types.FunctionType) or forward.__closure__ or forward.__code__.co_argcount != 2:
        return None
    for template, make in _TEMPLATES:
        if _instructions(forward) == _instructions(template):
            return make
    return None


def _instructions(function: types.FunctionType) -> list[tuple[str, Any]]:
    """A fingerprint of the function: its globals by value, without local names and line numbers."""
    code, found = function.__code__, []
    for one in dis.get_instructions(code):
        value = one.argval
        if one.opname == "LOAD_GLOBAL":
            value = function.__globals__.get(one.argval, getattr(builtins, str(one.argval), None))
        elif isinstance(value, str) and value in code.co_varnames and "FAST" in one.opname:
            value = code.co_varnames.index(value)
        elif "FAST" in one.opname and isinstance(value, tuple):
            value = tuple(map(code.co_varnames.index, value))
        found.append((one.opname, value))
    return found
