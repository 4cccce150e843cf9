"""An AOTInductor package with sluice's ops inside, for package.cpp: `python make_package.py model.pt2`.

The model returns what sluice makes of its input and what torch makes of it, so that whoever loads it can compare.
"""

from __future__ import annotations

import pathlib
import sys

import torch
import torch.nn.functional as F

import sluice
from sluice import stages

CHANNELS, TAPS = 64, 4


class Both(torch.nn.Module):
    """A gated depthwise convolution, by sluice in one op and by torch in four."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(CHANNELS, 1, TAPS, generator=generator) / TAPS**0.5)
        self.scale = torch.nn.Parameter(torch.rand(CHANNELS, 1, generator=generator) + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both results for x of (B, CHANNELS, L), each (B, CHANNELS, L - TAPS + 1)."""
        chain = stages.silu() | stages.mul(self.scale)
        ours = sluice.conv1d(x, self.weight, groups=CHANNELS, pre=stages.leaky_relu(0.1), post=chain)
        native = F.silu(F.conv1d(F.leaky_relu(x, 0.1), self.weight, groups=CHANNELS)) * self.scale
        return ours, native


def main() -> None:
    """Writes the package for any batch and any length up to 65536."""
    model = Both().eval().requires_grad_(False)
    sizes = {0: torch.export.Dim("batch", min=2, max=64), 2: torch.export.Dim("length", min=8, max=65536)}
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(2, CHANNELS, 1000),), dynamic_shapes={"x": sizes})
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(pathlib.Path(sys.argv[1]).absolute()))
    print(path)


if __name__ == "__main__":
    main()
