"""What autograd would lose: sluice is forward-only, and says so before it computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.autograd import forward_ad

from ._arguments import check_tensor

# The innermost running transform of torch.func, or None.
innermost_transform = torch._C._functorch.peek_interpreter_stack


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
