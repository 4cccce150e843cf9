"""torch.compile with sluice: the backend "sluice", and the same as a compiler pass for Inductor.

Two ways to the same ops:

- `torch.compile(model, backend="sluice")`.
- `torch._inductor.config.post_grad_custom_post_pass = sluice.compile.passes` with Inductor as the backend:
  `torch.compile(model)`, or AOTInductor on an exported program.

Convolutions over one dimension and the pointwise ops around them become `torch.ops.sluice.conv1d` and
`conv_transpose1d` with chains, if no gradient is needed. `TORCH_LOGS="+sluice"` says what each convolution has
become or why it was left alone.
"""

from __future__ import annotations

from typing import Any

from .backend import sluice as backend

__all__ = ["backend", "passes"]


def __getattr__(name: str) -> Any:
    # Loads Inductor, which `import sluice` does without.
    if name == "passes":
        from .post_grad import passes

        return passes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
