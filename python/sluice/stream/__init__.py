"""Streaming: host tensors through a GPU in chunks, both copies and the compute overlapped.

api.py         stream_map, stream_iter: a Streamer for one call           streamer.py, future.py
arguments.py   every check that comes before any work                     chunks.py, layout.py, structure.py
run.py         one call of map; work.py, one device of it                 iterate.py, items.py for iterators
pipeline.py    which slot, which event, who waits for whom; the orders
engine.py      the C++ engine (kernels/transfer) through torch.ops        slots.py, routes.py, memory.py
stats.py       numbers; report.py and timeline.py, what they say          limits.py, what the link can do
concurrent.py  a stream a host thread, n functions on n streams
"""

from .api import stream_iter, stream_map
from .concurrent import run_concurrent, thread_stream
from .device.limits import LinkLimits, link_limits
from .device.memory import host_registered
from .map.future import StreamFuture
from .report.overlap import OverlapReport, overlap_report
from .report.stats import StreamStats
from .streamer import Streamer

__all__ = [
    "LinkLimits",
    "OverlapReport",
    "StreamFuture",
    "StreamStats",
    "Streamer",
    "host_registered",
    "link_limits",
    "overlap_report",
    "run_concurrent",
    "stream_iter",
    "stream_map",
    "thread_stream",
]
