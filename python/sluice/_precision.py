"""torch's setting for float32 convolutions on a GPU: whether they may round their factors to TF32."""

from __future__ import annotations

import types
from typing import Any

import torch

from ._modes import current_mode

# The setting with torch's inheritance: a convolution's own value, else cuDNN's, else the general one. It also reads
# settings that were made by both of torch's interfaces, for which `torch.backends.cudnn.allow_tf32` raises.
_precision = torch._C._get_fp32_precision_getter


class _Settings(types.ModuleType):
    """What torch allows now.

    Dynamo cannot trace torch's getter. It takes a module's attribute for a constant and guards its value, so graphs are
    compiled again when the setting changes.
    """

    @property
    def allows_tf32(self) -> bool:
        """Whether TF32 is allowed: torch uses it for exactly this value."""
        return bool(_precision("cuda", "conv") == "tf32")


settings = _Settings(f"{__name__}.settings")


def add_precision(options: dict[str, Any], input: torch.Tensor, is_plain: bool = True) -> None:
    """Adds `precision` to the options of a raw convolution of float32 if torch allows TF32 for it.

    Args:
        options: the raw op's keyword arguments.
        input: the convolution's input.
        is_plain: `is_plain_call()`; planned calls are for a GPU, whatever the input's device.
    """
    if (input.is_cuda or (not is_plain and current_mode.action)) and settings.allows_tf32:
        options["precision"] = "tf32"
