"""Drop-in modules for torch's, with chains before and after.

They have torch's parameters and `state_dict`, and they train: if grad mode is on and an input or a parameter
requires grad, they run torch's own code, otherwise sluice's.

    >>> import torch, sluice
    >>> layer = sluice.nn.Conv1d(4, 8, 3, padding=1, post=torch.nn.LeakyReLU(0.1))
    >>> layer.load_state_dict(torch.nn.Conv1d(4, 8, 3, padding=1).state_dict())
    <All keys matched successfully>
    >>> with torch.no_grad():
    ...     layer(torch.zeros(2, 4, 16)).shape
    torch.Size([2, 8, 16])
"""

from .causal import CausalConv1d
from .causal_transpose import CausalConvTranspose1d
from .convolution import Conv1d, ConvTranspose1d
from .pointwise import Transform

__all__ = ["CausalConv1d", "CausalConvTranspose1d", "Conv1d", "ConvTranspose1d", "Transform"]
