"""Suite `models`: whole networks as users run them, in eager torch, replaced and compiled.

    python -m sluice bench models:speecht5_hifigan            # eager and replaced, alone and in CUDA graphs
    python -m sluice bench models:speecht5_hifigan_compiled_1 # compiled, one sequence
    python -m sluice bench models --cpu                       # the CPU's rows

A row is a network run by sluice in one way (`WAYS`), beside torch's ways in the same run. Inputs are one request's and
eight, in float32 with torch's default TF32 settings and in float16. Times are what a caller waits for: from the call
until the result is there, the host's part included. cuDNN's settings are torch's defaults too. The floor assumes one
pass for each convolution and linear layer: a copy of their inputs, results and weights, or their products at the rate
of a matmul.

The parts of a network are its rows without a compiler, and its compiled rows of each batch, which take minutes to
compile: `compile_models.py` compiles them in several processes ahead. All rows of a dtype and batch share a network,
which is dropped before the next. A result whose error against float64 is over three times eager torch's is wrong, and
is not timed. Errors of the peers are printed when they are first called in a row. Networks that transformers has not
are left out with a warning.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

import sluice
from captured import Captured, Network
from model_zoo import ZOO, Entry, Size
from sluice.bench import DTYPES, CallClock, Case, Suite, Workload
from sluice.bench.check import WrongResultError, relative_error
from sluice.demo.measure import in_float64

REPLACE, GRAPHS, BACKEND, REDUCED = "replace", "replace, CUDA graphs", "backend", "backend, reduce-overhead"
EAGER, IN_A_GRAPH, COMPILED, REDUCED_PEER = "torch", "torch_graph", "torch_compile", "torch_compile_reduce_overhead"
# The ways and torch's beside each.
WAYS = {
    REPLACE: (EAGER,),
    GRAPHS: (EAGER, IN_A_GRAPH),
    BACKEND: (EAGER, COMPILED),
    REDUCED: (EAGER, REDUCED_PEER),
}
WITHOUT_COMPILER, WITH_COMPILER = (REPLACE, GRAPHS), (BACKEND, REDUCED)
BATCHES = (1, 8)
# What users asked about, in the order in which the suite runs them; the other networks follow.
USERS = ("speecht5_hifigan", "vits_hifigan", "dac_decoder", "encodec_decoder", "mimi_decoder", "wav2vec2_features",
         "whisper_stem", "tcn", "wavenet")  # fmt: skip
# On the CPU, float32: lengths that take it less than about a second. The first is the demo's vocoder.
ON_CPU = {"speecht5_hifigan": 64, "mimi_decoder": 25, "whisper_stem": 3000, "conformer_convolution": 100, "tcn": 2000}
CPU_THREADS = 2

_FACTOR, _TINY = 3.0, 1e-6  # the allowed error: this many times eager torch's
_LARGEST = 5e-2  # with a larger error of eager torch the comparison means nothing
# Times a function may be compiled. The padding of Mimi's and EnCodec's decoders breaks graphs, so each layer compiles
# the `forward` of its class: EnCodec's convolutions 13 times in a network. After torch's limit of 8 they run eagerly.
_COMPILATIONS = 256

# A placeholder: a network has no plan of its own.
_PLAN = sluice.Plan(schedule="model", depth=1, tile=1, threads=0, shared_memory=0, grid=0, reason="a network")

Call = Callable[[], torch.Tensor]


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


# By way and by peer.
_MADE: dict[str, Callable[[nn.Module], Network]] = {
    REPLACE: lambda module: sluice.replace(copy.deepcopy(module)).model,
    GRAPHS: lambda module: sluice.replace(copy.deepcopy(module), cuda_graphs=True).model,
    BACKEND: lambda module: compiled(module, backend="sluice"),
    REDUCED: lambda module: compiled(module, backend="sluice", mode="reduce-overhead"),
    EAGER: lambda module: module,
    IN_A_GRAPH: lambda module: Captured(module),
    COMPILED: lambda module: compiled(module),
    REDUCED_PEER: lambda module: compiled(module, mode="reduce-overhead"),
}


class Subject:
    """A network with an input, and its ways to run, without gradients."""

    def __init__(self, name: str, dtype: str, size: Size, device: torch.device) -> None:
        self.module = copy.deepcopy(_network(name, size)).to(device, DTYPES[dtype])
        self.x = ZOO[name].inputs(device, DTYPES[dtype], size)[0]
        self._networks: dict[str, Network] = {}

    @functools.cached_property
    def reference(self) -> torch.Tensor:
        return in_float64(self.module, self.x)

    @functools.cached_property
    def error(self) -> float:
        """Eager torch's."""
        return relative_error(self.call(EAGER)(), self.reference)

    def call(self, way: str) -> Call:
        """A call by a way or a peer: the same for all rows, so each is compiled once."""
        if way not in self._networks:
            self._networks[way] = _MADE[way](self.module)
        return functools.partial(_called, self._networks[way], self.x)


@torch.no_grad()
def _called(network: Network, x: torch.Tensor) -> torch.Tensor:
    return network(x)


_last_network: dict[tuple[Any, ...], nn.Module] = {}
_last_subject: dict[tuple[Any, ...], Subject] = {}


def _network(name: str, size: Size) -> nn.Module:
    """On the CPU in float32; of the last name."""
    key = name, str(size.options)
    if key not in _last_network:
        _last_network.clear()
        _last_network[key] = ZOO[name].network(size)
    return _last_network[key]


def subject(name: str, dtype: str, size: Size, device: torch.device) -> Subject:
    """The subject of the rows that run; the last subject is dropped first, with what was compiled for it."""
    key = name, dtype, str(size), device
    if key not in _last_subject:
        _last_subject.clear()
        torch._dynamo.reset()
        gc.collect()  # compiled modules are in cycles
        _last_subject[key] = Subject(name, dtype, size, device)
    return _last_subject[key]


def release() -> None:
    _last_subject.clear()
    _last_network.clear()


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


def _make(name: str, dtype: str, size: Size, way: str, device: torch.device) -> Workload:
    if device.type == "cpu":
        torch.set_num_threads(CPU_THREADS)
    found = subject(name, dtype, size, device)
    if not found.error <= _LARGEST:
        raise WrongResultError(f"{name}: eager torch's error must be at most {_LARGEST}, got {found.error:g}")
    ours = found.call(way)
    error, limit = relative_error(ours(), found.reference), _FACTOR * found.error + _TINY
    if not error <= limit:
        raise WrongResultError(f"{name}, {way}: relative L2 error must be at most {limit:g}, got {error:g}")
    peers = {
        peer: _with_its_error(peer, found.call(peer), found.reference)
        for peer in WAYS[way]
        if peer != IN_A_GRAPH or ZOO[name].capturable
    }
    traffic, flops = costs(found.module, found.x)
    return Workload(
        ours=lambda: ours(),
        write=lambda out: out.copy_(ours()),
        reference=lambda: found.reference,
        plan=_PLAN,
        traffic=traffic,
        matmul_flops=flops,
        peers=peers,
    )


def model_case(name: str, dtype: str, batch: int, way: str, size: Size | None = None) -> Case:
    """A row, by default of the users' size; the batch is always `batch`."""
    given = (size or ZOO[name].size("user"))._replace(batch=batch)
    length = given.lengths[0]
    return Case(
        name=f"{name} {dtype} {batch}x{length}: {way}",
        params={"B": batch, "L": length, "dtype": dtype, "op": name, "fn": way},
        make=functools.partial(_make, name, dtype, given, way),
        tolerance=_FACTOR * _LARGEST,
        part=name if way in WITHOUT_COMPILER else f"{name}_compiled_{batch}",
    )


def _here() -> Iterator[Entry]:
    for name, entry in ZOO.items():
        if (reason := entry.missing()) is None:
            yield entry
        else:
            warnings.warn(f"suite models leaves {name} out: {reason}", stacklevel=2)


def _cases() -> list[Case]:
    """What users asked about first; of the other networks no compiled rows of eight, which take longest."""
    names = [entry.name for entry in _here()]
    users, others = [name for name in USERS if name in names], [name for name in names if name not in USERS]
    asked = [
        *((users, WITHOUT_COMPILER, BATCHES), (users, WITH_COMPILER, (1,)), (others, WITHOUT_COMPILER, BATCHES)),
        *((users, WITH_COMPILER, (8,)), (others, WITH_COMPILER, (1,))),
    ]
    return [
        model_case(name, dtype, batch, way)
        for networks, ways, batches in asked
        for name, dtype, batch, way in itertools.product(networks, ("fp32", "fp16"), batches, ways)
    ]


def _cpu_cases() -> list[Case]:
    """A part has all rows of a network."""
    cases = []
    for name, length in ON_CPU.items():
        if ZOO[name].missing() is None:
            size = ZOO[name].size("user")._replace(lengths=(length, length))
            rows = [model_case(name, "fp32", 1, way, size) for way in (REPLACE, BACKEND)]
            cases += [dataclasses.replace(row, part=name) for row in rows]
    return cases


SUITE = Suite("models", _cases(), clock=CallClock, release=release, cpu_cases=_cpu_cases(), cudnn_benchmark=False)
