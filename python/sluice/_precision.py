"""torch's setting for float32 convolutions on a GPU: whether they may round their factors to TF32."""

from __future__ import annotations

import types

import torch

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
