"""Causal convolutions under the names and arguments of other packages.

causal_conv1d/   the package of that name; `install()` lets `import causal_conv1d` find it
vllm.py, sglang.py, fla.py, cudnn.py   functions of vLLM, SGLang, flash-linear-attention and cuDNN's front end

Docstrings list the arguments that differ from sluice's function; the others mean the same.
"""

from . import causal_conv1d, cudnn, fla, sglang, vllm

__all__ = ["causal_conv1d", "cudnn", "fla", "sglang", "vllm"]
