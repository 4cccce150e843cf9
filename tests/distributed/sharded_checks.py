"""What the tests of DTensors run on each rank, besides the placements of sharded_calls.py."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from sharded_calls import CASES, check, distributed, flat
from torch.distributed.tensor import DeviceMesh, DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

import sluice
import sluice.distributed
from common import NAN
from sluice import stages
from sluice.distributed import sharding
from sluice.distributed.splits import RULES, Split


def mesh_of_all() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


def communication(name: str, where: dict[str, Any]) -> tuple[dict[str, int], int, set[str]]:
    """The collectives of a call, how many batches of sends and receives it has, and where its results are."""
    mesh, case, batches = mesh_of_all(), CASES[name], []
    tensors = {key: distributed(value, mesh, [where.get(key, Replicate())]) for key, value in case.draw().items()}
    real = dist.batch_isend_irecv

    def counted(operations: list[Any]) -> list[Any]:
        batches.append(len(operations))
        return real(operations)

    with mock.patch.object(dist, "batch_isend_irecv", counted), CommDebugMode() as mode:
        results = flat(case.function(**tensors))
    counts = {str(key).rpartition(".")[2]: count for key, count in mode.get_comm_counts().items()}
    return counts, len(batches), {str(one) for result in results for one in result.placements}


def outs() -> list[tuple[str, bool]]:
    """Results written into DTensors of all placements: where, and whether the values are right."""
    mesh, found = mesh_of_all(), []
    torch.manual_seed(0)
    x, w = torch.randn(4, 4, 9), torch.randn(4, 3)
    taps = distribute_tensor(w, mesh, [Replicate()])
    wanted = sluice.causal_conv1d(x, w, initial_states=x[..., :2], return_final_states=True)
    for where in (Shard(0), Shard(1), Shard(2), Replicate()):
        for given in (Shard(0), Shard(2)):
            rows = distribute_tensor(x, mesh, [given])
            empty = torch.full_like(x, NAN), torch.full((4, 4, 2), NAN)
            out, states = (distribute_tensor(one, mesh, [where]) for one in empty)
            result = sluice.causal_conv1d(
                rows, taps, initial_states=distribute_tensor(x[..., :2].contiguous(), mesh, [Shard(0)]), out=out,
                final_states_out=states,
            )  # fmt: skip
            same = result[0] is out and result[1] is states and list(out.placements) == [where]
            equal = all(torch.equal(a.full_tensor(), b) for a, b in zip(result, wanted, strict=True))
            found.append((f"{given} to {where}", same and equal))
            plain = distribute_tensor(empty[0].clone(), mesh, [where])
            sluice.causal_conv1d(rows, taps, out=plain)
            found.append((f"{given} to {where}, rows", torch.equal(plain.full_tensor(), sluice.causal_conv1d(x, w))))
    return found


def chunk_outs() -> list[tuple[str, bool]]:
    """The same of chunks, whose caches have placements of their own."""
    mesh, found = mesh_of_all(), []
    torch.manual_seed(0)
    x, weights = torch.randn(4, 4, 8), {"causal_conv1d": (8, 4, 5), "causal_conv_transpose1d": (4, 8, 5)}
    for op, shape in weights.items():
        w, is_transposed = torch.randn(shape), op == "causal_conv_transpose1d"
        name, channels = ("overlap_cache", 8) if is_transposed else ("state_cache", 4)
        cache, result = torch.randn(4, channels, 3), torch.full((4, 8, 16 if is_transposed else 4), NAN)
        after = cache.clone()
        wanted = getattr(sluice, op)(x, w, stride=2, **{name: after})
        for where, kept, given in itertools.product(
            (Shard(0), Shard(1), Shard(2), Replicate()), (Shard(0), Shard(1), Replicate()), (Shard(0), Replicate())
        ):
            rows, taps = distribute_tensor(x, mesh, [given]), distribute_tensor(w, mesh, [Replicate()])
            out, states = (
                distribute_tensor(result.clone(), mesh, [where]),
                distribute_tensor(cache.clone(), mesh, [kept]),
            )
            returned = getattr(sluice, op)(rows, taps, stride=2, out=out, **{name: states})
            same = returned is out and list(out.placements) == [where] and list(states.placements) == [kept]
            equal = torch.allclose(out.full_tensor(), wanted, atol=1e-5)
            equal &= torch.allclose(states.full_tensor(), after, atol=1e-5)
            found.append((f"{op}: {given} to {where}, {kept}", same and equal))
    return found


def own_stage() -> bool:
    """A chain with a stage that its reference computes, over sharded tensors."""
    mesh = mesh_of_all()
    torch.manual_seed(0)
    x, w, gain = torch.randn(4, 4, 9), torch.randn(4, 1, 3), torch.randn(4, 1)

    def call(x: torch.Tensor, w: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        post = stages.cpp("x * a", a=gain, reference=lambda x, a: x * a) | stages.silu()
        return sluice.conv1d(x, w, groups=4, post=post)

    spread = [distribute_tensor(one, mesh, [Shard(0)]) for one in (x, w, gain)]
    return torch.allclose(call(*spread).full_tensor(), call(x, w, gain))


def mesh_of_some() -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """A mesh of two of the ranks: shape, local shape, and whether the result is right where there is one."""
    mesh = DeviceMesh("cpu", [1, 2])
    torch.manual_seed(0)
    x, w = torch.randn(4, 6, 9), torch.randn(6, 1, 3)
    y = sluice.conv1d(distribute_tensor(x, mesh, [Shard(2)]), distribute_tensor(w, mesh, [Shard(0)]), groups=6)
    whole = y.full_tensor()
    is_right = mesh.get_coordinate() is None or torch.equal(whole, sluice.conv1d(x, w, groups=6))
    return tuple(y.shape), tuple(y.to_local().shape), is_right


def compiled() -> list[tuple[str, bool]]:
    """Compiled graphs, in which every placement gives the same values; sequences have no halo there."""
    mesh, found = mesh_of_all(), []
    torch.manual_seed(0)
    x, w, b = torch.randn(4, 6, 9), torch.randn(6, 1, 3), torch.randn(6)

    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = sluice.conv1d(x, w, b, groups=6, padding=1, post=stages.mul(b[:, None]) | stages.silu())
        return sluice.transform(y, stages.scale(2.0))

    for where in (Shard(0), Shard(1), Shard(2), Replicate()):
        torch._dynamo.reset()
        spread = distribute_tensor(x, mesh, [where]), *(distribute_tensor(t, mesh, [Replicate()]) for t in (w, b))
        with torch.no_grad():
            y = torch.compile(call, backend="aot_eager", fullgraph=True)(*spread)
        found.append((f"{where} {y.placements[0]}", torch.allclose(y.full_tensor(), call(x, w, b))))
    return found


def refused() -> list[tuple[str, str]]:
    """The errors of calls that cannot be sharded or are wrong."""
    mesh, found = mesh_of_all(), []
    other = DeviceMesh("cpu", list(range(dist.get_world_size()))[::-1])
    x, w = torch.zeros(4, 4, 9), torch.zeros(4, 1, 3)
    rows, taps = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(w, mesh, [Replicate()])
    state = DTensor.from_local(torch.zeros(4, 4, 2), mesh, [torch.distributed.tensor.Partial()], run_check=False)
    calls = [
        lambda: sluice.conv1d(rows, w, groups=4),
        lambda: sluice.conv1d(x, taps, groups=4),
        lambda: sluice.conv1d(rows, taps, groups=3),
        lambda: torch.ops.sluice.conv1d(rows, taps, None, 1, 0, 1, 3),
        lambda: sluice.conv1d(rows, distribute_tensor(w, other, [Replicate()]), groups=4),
        lambda: sluice.conv1d(rows, taps, groups=4, post=stages.mul(torch.zeros(4, 1))),
        lambda: sluice.conv1d(rows, taps, groups=4, out=torch.zeros(4, 4, 7)),
        lambda: sluice.conv1d(rows, taps, groups=4, out=distribute_tensor(x, mesh, [Shard(0)])),
        lambda: sluice.causal_conv1d_update(rows[..., 0], state, taps[:, 0]),
        lambda: sluice.distributed.conv1d(rows, taps, groups=4),
    ]
    for call in calls:
        try:
            call()
            found.append(("", ""))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


def implicitly_replicated() -> bool:
    """Plain tensors beside DTensors, where torch allows them."""
    from torch.distributed.tensor.experimental import implicit_replication

    mesh = mesh_of_all()
    x, w = torch.ones(4, 4, 9), torch.ones(4, 1, 3)
    with implicit_replication():
        y = sluice.conv1d(distribute_tensor(x, mesh, [Shard(0)]), w, groups=4, post=stages.mul(torch.ones(4, 1)))
    number = sluice.transform(distribute_tensor(x, mesh, [Shard(0)]), stages.mul(torch.tensor(2.0)))
    return torch.equal(y.full_tensor(), sluice.conv1d(x, w, groups=4)) and torch.equal(number.full_tensor(), 2 * x)


def a_wrong_rule_is_seen() -> bool:
    """Whether `check` fails for a rule that takes sums over some of the input channels for whole sums."""
    where = {name: [Shard(1) if name in ("x", "w") else Replicate()] for name in CASES["dense"].tensors}
    wrong = [Split({"input": 1, "weight": 1, "pre_operands": (0,)}, None)]
    with mock.patch.dict(RULES, {"conv1d": lambda values: wrong}):
        sharding._remembered.cache_clear()
        try:
            check("dense", mesh_of_all(), where)
        except AssertionError:
            return True
        finally:
            sharding._remembered.cache_clear()
    return False


def in_inference_mode() -> bool:
    """A convolution of a sharded sequence, and one that gathers its weight."""
    mesh = mesh_of_all()
    torch.manual_seed(0)
    with torch.inference_mode():
        x, w = torch.randn(4, 4, 9), torch.randn(4, 1, 3)
        sequence, rows = (distribute_tensor(x, mesh, [Shard(d)]) for d in (2, 0))
        results = [sluice.conv1d(one, distribute_tensor(w, mesh, [Shard(0)]), groups=4) for one in (sequence, rows)]
        return all(torch.equal(one.full_tensor(), sluice.conv1d(x, w, groups=4)) for one in results)


def modules() -> list[bool]:
    """Whether modules have the unsharded results with parameters and inputs of every placement."""
    mesh, equal = mesh_of_all(), []
    torch.manual_seed(0)
    for kind, groups in ((sluice.nn.Conv1d, 1), (sluice.nn.Conv1d, 8), (sluice.nn.ConvTranspose1d, 1)):
        module = kind(8, 8, 3, groups=groups).eval().requires_grad_(False)
        x = torch.randn(4, 8, 30)
        wanted, weight, bias = module(x), module.weight.data, module.bias.data
        for where, offset in itertools.product((Replicate(), Shard(0), Shard(1)), (Replicate(), Shard(0))):
            module.weight = torch.nn.Parameter(distribute_tensor(weight, mesh, [where]), requires_grad=False)
            module.bias = torch.nn.Parameter(distribute_tensor(bias, mesh, [offset]), requires_grad=False)
            for given in (Replicate(), Shard(0), Shard(1), Shard(2)):
                result = module(distribute_tensor(x, mesh, [given])).full_tensor()
                equal.append(result.shape == wanted.shape and torch.allclose(result, wanted, atol=1e-5))
    return equal
