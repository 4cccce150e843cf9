"""Suite `models`: whole networks before and after `sluice.replace`, beside eager and compiled torch.

A row is a network run by sluice in one way, with torch's ways as its peers: `torch` is the eager network,
`torch_compile` and `torch_compile_max_autotune` are compiled. In a row with "CUDA graph" the peers run in graphs too.
The floor assumes one pass for each convolution and linear layer: a copy of their inputs, results and weights, or their
products at the rate of a matmul.

A network is a part of the suite, with a results file of its own: it is built, compared with float64 and compiled once
for all of its rows, and dropped before the next. A result whose error against float64 is over three times eager torch's
is wrong, and is not timed. Errors of the peers are printed when they are first called in a row. Networks that
transformers has not are left out with a warning.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import sluice
from model_zoo import ZOO, Entry
from record_layers import OneByOne
from sluice.bench import DTYPES, Case, Suite, Workload
from sluice.bench.check import WrongResultError, relative_error
from sluice.bench.timing import ColdClock
from sluice.demo.measure import in_float64

REPLACE, REPLACE_COMPILED, BACKEND = "replace", "replace + torch.compile", 'backend="sluice"'
WAYS = (REPLACE, REPLACE_COMPILED, BACKEND)
SEARCHED = "torch_compile_max_autotune"
PEERS = ("torch", "torch_compile", SEARCHED)
IN_A_GRAPH = ", CUDA graph"
_FACTOR, _TINY = 3.0, 1e-6  # the allowed error: this many times eager torch's
_LARGEST = 5e-2  # with a larger error of eager torch the comparison means nothing
_WARM_UP = 3  # calls before a capture
# Times a function may be compiled. The padding of Mimi's and EnCodec's decoders breaks graphs, so each layer compiles
# the `forward` of its class: EnCodec's convolutions 13 times in a network. After torch's limit of 8 they run eagerly.
_COMPILATIONS = 256

# A placeholder: a network has no plan of its own.
_PLAN = sluice.Plan(schedule="model", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="a network")

Call = Callable[[], torch.Tensor]
Network = Callable[[torch.Tensor], Any]


def compiled(network: nn.Module, **options: Any) -> Network:
    """`torch.compile(network, dynamic=False, **options)`, compiled when it is first called."""
    program = torch.compile(network, dynamic=False, **options)
    is_compiled = False

    def call(x: torch.Tensor) -> Any:
        nonlocal is_compiled
        if is_compiled:
            return program(x)
        with torch._dynamo.config.patch(recompile_limit=_COMPILATIONS):
            result = program(x)
        is_compiled = True
        return result

    return call


class Subject:
    """A network with an input, and its ways to run."""

    def __init__(self, entry: Entry, dtype: str, size: str, device: torch.device) -> None:
        self.device = device
        self.module, (self.x, _) = entry.build(device, DTYPES[dtype], size)
        self.reference = in_float64(self.module, self.x)
        self.error = relative_error(self.module(self.x), self.reference)
        self.traffic, self.flops = costs(self.module, self.x)

    @functools.cached_property
    def networks(self) -> dict[str, Network]:
        """By way and by peer; the same for all rows, so each is compiled once."""
        replaced = sluice.replace(copy.deepcopy(self.module)).model
        return {
            REPLACE: replaced,
            REPLACE_COMPILED: compiled(replaced),
            BACKEND: compiled(self.module, backend="sluice"),
            "torch": self.module,
            "torch_compile": compiled(self.module),
            SEARCHED: compiled(self.module, mode="max-autotune-no-cudagraphs"),
        }

    def call(self, name: str) -> Call:
        network = self.networks[name]
        return lambda: network(self.x)


@functools.lru_cache(maxsize=1)  # of the part that runs: SUITE.release drops it
def subject(name: str, dtype: str, size: str, device: torch.device) -> Subject:
    return Subject(ZOO[name], dtype, size, device)


def costs(module: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """Bytes and floating-point operations of the convolutions and linear layers, in a call with x."""
    traffic = flops = 0

    def count(layer: Any, inputs: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        nonlocal traffic, flops
        traffic += inputs[0].nbytes + result.nbytes + layer.weight.nbytes
        # weight[0] has the weights of an output channel; in a transposed convolution, of an input channel.
        elements = inputs[0] if isinstance(layer, nn.ConvTranspose1d) else result
        flops += 2 * elements.numel() * layer.weight[0].numel()

    layers = (layer for layer in module.modules() if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)))
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        module(x)
    finally:
        for handle in handles:
            handle.remove()
    return traffic, flops


class Captured:
    """A call that is captured in a CUDA graph the first time, and replayed afterwards."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> torch.Tensor:
        if self._graph is None:
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(_WARM_UP):
                    self._call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._result = self._call()
            self._graph = graph
        self._graph.replay()
        return self._result


def _with_its_error(name: str, call: Call, reference: torch.Tensor) -> Call:
    """The call, which prints its error against the reference the first time."""
    said = False

    def first_said() -> torch.Tensor:
        nonlocal said
        result = call()
        if not said:
            said = True
            print(f"    {name}: relative L2 error {relative_error(result, reference):.1e}")
        return result

    return first_said


def _make(name: str, dtype: str, size: str, way: str, device: torch.device) -> Workload:
    found = subject(name, dtype, size, device)
    if not found.error <= _LARGEST:
        raise WrongResultError(f"{name}: eager torch's error must be at most {_LARGEST}, got {found.error:g}")
    in_a_graph = way.endswith(IN_A_GRAPH)
    placed = Captured if in_a_graph else lambda call: call
    ours = placed(found.call(way.removesuffix(IN_A_GRAPH)))
    error, limit = relative_error(ours(), found.reference), _FACTOR * found.error + _TINY
    if not error <= limit:
        raise WrongResultError(f"{name}, {way}: relative L2 error must be at most {limit:g}, got {error:g}")
    peers = {
        peer: _with_its_error(peer, placed(found.call(peer)), found.reference)
        for peer in PEERS
        if peer != SEARCHED or way.removesuffix(IN_A_GRAPH) == REPLACE
    }
    return Workload(
        ours=lambda: ours(),
        write=lambda out: out.copy_(ours()),
        reference=lambda: found.reference,
        plan=_PLAN,
        traffic=found.traffic,
        matmul_flops=found.flops,
        peers=peers,
    )


def model_case(name: str, dtype: str, way: str, size: str = "real") -> Case:
    batch, length = ZOO[name].size(size).batch, ZOO[name].size(size).lengths[0]
    return Case(
        name=f"{name} {dtype} {batch}x{length} {way}",
        params={"B": batch, "L": length, "dtype": dtype, "op": name, "fn": way},
        make=functools.partial(_make, name, dtype, size, way),
        tolerance=_FACTOR * _LARGEST,
        part=name,
    )


def _cases() -> list[Case]:
    cases = []
    for name, entry in ZOO.items():
        if (reason := entry.missing()) is not None:
            warnings.warn(f"suite models leaves {name} out: {reason}", stacklevel=2)
            continue
        graphs = [way + IN_A_GRAPH for way in WAYS] if entry.capturable else []
        cases += [model_case(name, "fp16", way) for way in (*WAYS, *graphs)]
    return cases


SUITE = Suite("models", _cases(), clock=lambda device: OneByOne(ColdClock(device)), release=subject.cache_clear)
