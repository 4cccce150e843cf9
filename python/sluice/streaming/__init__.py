"""Models that take their input chunk by chunk.

stream.py     `streaming`, and a `Streaming` with its slots
analysis.py   what each op of a model does to time; why a model is no stream
reach.py      the inputs that a result sees
values.py     a time axis beside the input's
modules.py, functions.py, calls.py, indexing.py, expand.py, products.py, wrappers.py   the rules, by kind of op
writes.py     what is changed in place, and who reads it afterwards
trace.py      a model as a graph of torch.fx
proxies.py    tensors of that trace, which record writes in place
fuse.py, build.py   the graph of the stream
layers.py     convolutions with a state, recurrent layers
"""

from .stream import Streaming, streaming

__all__ = ["Streaming", "streaming"]
