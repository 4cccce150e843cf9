"""Streaming: host tensors through a GPU in chunks, both copies and the compute overlapped.

api.py         stream_map, stream_iter: a Streamer for one call     streamer.py; call.py, its calls one after the other
map/           run.py, one call; ledger.py, state that devices share; learner.py, the first chunk; work.py, the others
               arguments.py, chunks.py, outputs.py, progress.py, future.py
iter/          iterate.py, one iterator; items.py, the items of one device
report/        stats.py, numbers; overlap.py and timeline.py, their evaluation
device/        pipeline.py, which slot, which event, who waits for whom; engine.py, the C++ engine (kernels/transfer)
               lender.py, lent.py, what runs borrow; slots.py, routes.py, registered.py, memory.py, layout.py, limits.py
command.py     `python -m sluice trace`     concurrent.py  a stream per host thread, n functions on n streams

Used by all: arguments.py, checks before any work; structure.py, results of fn; ending.py, process.py, faults.py and
modes.py. A folder imports those named below it; map and iter do not import each other.
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
