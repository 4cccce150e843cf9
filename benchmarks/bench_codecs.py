"""Suite `codecs`: causal convolutions and codecs' networks chunk by chunk, with states.

    python -m sluice bench codecs:dense codecs:strided codecs:transposed   # single layers
    python -m sluice bench codecs:mimi_encoder                             # a network, four rows

A row of a layer is a step of some streams: each has a few inputs, whose past is in a slot of a cache. The weight is
packed. A time is that of a call among 100 in a CUDA graph, warm: a weight that fits in L2 is read from it, by all
peers, and the floor is a copy of as many bytes in the same way. These are the weight, the bias, the input, the slots
and the result, each once, and twice the rows' states. A weight that does not fit is read from memory, as is the copy.

A row of a network is a step of all its streams by `sluice.streaming`, 80 ms of sound, with code2wav 320. It is a CUDA
graph, replayed 25 times from an idle GPU; the time is that of the 25 steps on the host until the GPU is done, over 25.
The floor is a copy of what all layers read and write, each by itself, or their products at the rate of a matmul.

Peers keep the states by hand: `torch.cat` with the inputs before and `copy_`, in rows without slots. "torch" runs as
it is called, in blocks of 25 steps; so does "sluice_eager", which is sluice's call outside of a CUDA graph.
"torch_graph" and "torch_compile" are in CUDA graphs like sluice's: of a layer among 100, of a network as a step.
cuDNN's settings are torch's defaults.

Results and states of a layer are compared with the definition in float64. The chunks of a network are compared with
its run over the whole input in float64: a result whose error is over three times that of eager torch's run over the
whole input is wrong, and is not timed, a peer's last chunk likewise. Networks that transformers has not are left out
with a warning.
"""

from __future__ import annotations

from codec_layers import layer_cases
from codec_streams import release, stream_cases
from direct_clock import StepClock
from sluice.bench import Suite

SUITE = Suite("codecs", [*layer_cases(), *stream_cases()], clock=StepClock, release=release, cudnn_benchmark=False)
