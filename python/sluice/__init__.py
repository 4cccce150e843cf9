"""sluice: pipelined CUDA operators for PyTorch. Forward-only; used through `torch.ops.sluice` or the functions here."""

import importlib
import types

from . import _library

_library.load()

from . import _call, nn, reference, stages  # noqa: E402
from . import _flops as _flops  # noqa: E402
from . import _vmap as _vmap  # noqa: E402
from . import compile as compile  # noqa: E402
from .causal_conv1d import causal_conv1d  # noqa: E402
from .causal_conv1d_update import causal_conv1d_update  # noqa: E402
from .causal_conv_transpose1d import causal_conv_transpose1d  # noqa: E402
from .chain import Chain  # noqa: E402
from .compile.registration import register as _register_backend  # noqa: E402
from .conv1d import conv1d  # noqa: E402
from .conv_transpose1d import conv_transpose1d  # noqa: E402
from .filter2d import filter2d  # noqa: E402
from .info import __version__ as __version__  # noqa: E402
from .info import info  # noqa: E402
from .pack import PackedWeight, pack  # noqa: E402
from .plan import Plan, plan  # noqa: E402
from .prepare import prepare  # noqa: E402
from .replace import Replacement, replace  # noqa: E402
from .stream import (  # noqa: E402
    LinkLimits,
    OverlapReport,
    Streamer,
    StreamFuture,
    StreamStats,
    host_registered,
    link_limits,
    overlap_report,
    run_concurrent,
    stream_iter,
    stream_map,
    thread_stream,
)
from .streaming import Streaming, streaming  # noqa: E402
from .transform import transform  # noqa: E402

_register_backend()

__all__ = [
    "Chain",
    "LinkLimits",
    "OverlapReport",
    "PackedWeight",
    "Plan",
    "Replacement",
    "StreamFuture",
    "StreamStats",
    "Streamer",
    "Streaming",
    "causal_conv1d",
    "causal_conv1d_update",
    "causal_conv_transpose1d",
    "conv1d",
    "conv_transpose1d",
    "filter2d",
    "host_registered",
    "info",
    "link_limits",
    "nn",
    "overlap_report",
    "pack",
    "plan",
    "prepare",
    "reference",
    "replace",
    "run_concurrent",
    "stages",
    "stream_iter",
    "stream_map",
    "streaming",
    "thread_stream",
    "transform",
]


def _load_sharding_rules() -> None:
    from . import distributed  # noqa: F401


_call.sharding_rules.append(_load_sharding_rules)


def __getattr__(name: str) -> types.ModuleType:
    """`sluice.distributed`, loaded when it is first used: it takes half a second."""
    if name == "distributed":
        return importlib.import_module(".distributed", __name__)
    raise AttributeError(f"module 'sluice' has no attribute {name!r}")
