"""The causal_conv1d package (1.7) without gradients: its functions, its modules, and `install()`.

causal_conv1d_interface.py   causal_conv1d_fn, causal_conv1d_update    _install.py   install, uninstall
causal_conv1d_varlen.py      causal_conv1d_varlen_states               _modules.py   the modules that stand in
cpp_functions.py             what mamba-ssm imports                    _users.py     transformers, imported modules
"""

from . import causal_conv1d_interface, causal_conv1d_varlen, cpp_functions
from ._install import Report, install, uninstall
from .causal_conv1d_interface import causal_conv1d_fn, causal_conv1d_update
from .causal_conv1d_varlen import causal_conv1d_varlen_states

__version__ = "1.7.0"  # the version of the package whose interface this is

__all__ = [
    "Report",
    "causal_conv1d_fn",
    "causal_conv1d_interface",
    "causal_conv1d_update",
    "causal_conv1d_varlen",
    "causal_conv1d_varlen_states",
    "cpp_functions",
    "install",
    "uninstall",
]
