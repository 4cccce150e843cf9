"""Other packages' causal convolutions, by their names and with their arguments.

causal_conv1d/   the package of that name, with `install()`, by which it is found under that name
vllm.py, sglang.py, fla.py, cudnn.py   functions of vLLM, SGLang, flash-linear-attention and cuDNN's front end
"""

from . import causal_conv1d, cudnn, fla, sglang, vllm

__all__ = ["causal_conv1d", "cudnn", "fla", "sglang", "vllm"]
