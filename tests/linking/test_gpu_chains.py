"""Chains linked at run time: the interpreter's bits, and one compilation a chain."""

from __future__ import annotations

import functools
import random
import threading

import pytest
import torch

import sluice
from common import NARROW_TYPES, SCHEDULES, TOLERANCE, double_chain, memory_in_use, permuted, relative_error
from every_stage import SAMPLES
from linked_forms import interpreted, linking
from marks import LINKED_ON_GPU
from sluice import reference, stages

pytestmark = LINKED_ON_GPU


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(torch.nan_to_num(a, 1234.5), torch.nan_to_num(b, 1234.5))


def random_chain(rng: random.Random, x: torch.Tensor) -> sluice.Chain:
    """1 to 16 stages with 0 to 8 tensors of any dtype and layout that broadcast to x."""
    tensors: list[torch.Tensor] = []

    def tensor() -> torch.Tensor:
        if len(tensors) == 8 or (tensors and rng.random() < 0.3):
            return rng.choice(tensors)
        shape = [size if rng.random() < 0.7 else 1 for size in x.shape][rng.choice([0, 0, 1]) :]
        dtype = rng.choice([torch.float32, torch.float16, torch.bfloat16, torch.float64])
        value = torch.rand(shape, device=x.device).add(0.5).to(dtype)
        if rng.random() < 0.3:
            value = permuted(value)
        elif rng.random() < 0.3:
            value = torch.cat([value.flatten()[:1], value.flatten()])[1:].view(shape)
        elif rng.random() < 0.1:
            value = torch.tensor(rng.uniform(0.5, 1.5), device=x.device, dtype=dtype)
        tensors.append(value)
        return value

    def value(_: float = 1.0) -> float | torch.Tensor:
        return tensor() if rng.random() < 0.4 else rng.uniform(0.5, 1.5)

    # A long chain takes none of these as the samples have them: exp ends in infinity, softplus jumps at its threshold.
    own = {
        "exp": lambda t: stages.clamp(-2.0, 2.0) | stages.exp(),
        "softplus": lambda t: stages.softplus(t(1.0), 20.0),
        "cast": lambda t: stages.cast(rng.choice([torch.float16, torch.bfloat16, torch.float32])),
        "cpp": lambda t: stages.cpp(
            "x / (1 + a * fabs(x)) + b", a=t(1.0), b=t(1.0), reference=lambda x, a, b: x / (1 + a * x.abs()) + b
        ),
    }
    makers = list((SAMPLES | own).values())
    chain = sluice.Chain()
    for _ in range(rng.randint(1, 16)):
        longer = chain | rng.choice(makers)(value)
        chain = longer if len(longer) <= 16 else chain
    return chain


def check_one(rng: random.Random) -> None:
    dtype = rng.choice([torch.float32, torch.float16, torch.bfloat16, torch.float64])
    shape = rng.choice([(5, 700), (3, 257), (2, 3, 129), (1025,), (64, 65)])
    x = rng.choice([lambda t: t, permuted])(torch.randn(shape, device="cuda")).to(dtype)
    chain = random_chain(rng, x)
    result = chain(x)
    if not chain.has_cpp:
        assert same_bits(result, interpreted(lambda: chain(x))), f"{chain} on {dtype} {shape}"
    rounds = any(name == "cast" for name, _ in chain.stages)
    wanted = reference.transform(x.double(), double_chain(chain), dtype=torch.float64)
    exact = reference.transform(x, chain)
    # A chain may amplify roundings, or jump where one changes a sign: its own float32 evaluation says how much.
    allowed = 20 * max(relative_error(exact, wanted), TOLERANCE[result.dtype]) + (0.05 if rounds else 0)
    assert relative_error(result, wanted) <= allowed, f"{chain} on {dtype} {shape}"


@pytest.mark.parametrize("part", range(6))
def test_random_chains(part: int) -> None:
    rng = random.Random(torch.initial_seed() + part)
    before, links = memory_in_use(), linking()["linked_launches"]
    for _ in range(50):
        check_one(rng)
    assert linking()["linked_launches"] >= links + 50
    assert memory_in_use() == before


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("layout", ["cf", "cl"])
def test_convolutions_have_the_interpreters_bits(schedule: str, layout: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(3, 70, 501, device="cuda", dtype=dtype)
        x = permuted(x) if layout == "cl" else x
        scale = torch.rand(70, 1, device="cuda")
        for taps, stride in ((4, 1), (9, 1), (5, 2)):
            w = torch.randn(70, 1, taps, device="cuda", dtype=dtype)
            length = (501 + 4 - taps) // stride + 1
            other, bias = torch.randn(3, 70, length, device="cuda"), torch.ones_like(w[:, 0, 0])
            for pre in (None, stages.silu() | stages.scale(scale)):
                options = {"pre": pre, "post": stages.add(other) | stages.snake(scale), "schedule": schedule}
                compute = functools.partial(sluice.conv1d, x, w, bias, stride, 2, 1, 70, **options)
                launches = linking()["linked_launches"]
                result = compute()
                assert linking()["linked_launches"] == launches + 1
                assert torch.equal(result, interpreted(compute))


@pytest.mark.parametrize("dtype", NARROW_TYPES, ids=str)
def test_few_taps_have_the_interpreters_bits(dtype: torch.dtype) -> None:
    """Unaligned rows with tensors of the chain."""
    gain = torch.rand(70, 1, device="cuda")
    for length in (501, 512, 2051, 7):
        x, other = torch.randn(3, 70, length, device="cuda", dtype=dtype), torch.randn(3, 70, length, device="cuda")
        states = torch.randn(3, 70, 3, device="cuda", dtype=dtype)
        post = stages.add(other) | stages.snake(gain) | stages.mul(other)
        w = torch.randn(70, 4, device="cuda", dtype=dtype)
        for compute in (
            functools.partial(sluice.conv1d, x, w[:, None, :3].contiguous(), None, 1, 1, 1, 70, post=post),
            functools.partial(sluice.causal_conv1d, x, w, post=post),
            functools.partial(sluice.causal_conv1d, x, w, initial_states=states, post=post),
        ):
            launches = linking()["linked_launches"]
            result = compute()
            assert linking()["linked_launches"] == launches + 1
            assert torch.equal(result, interpreted(compute))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_stencils_have_the_interpreters_bits(schedule: str, dtype: torch.dtype) -> None:
    wide = torch.randn(2, 3, 50, 90, device="cuda", dtype=dtype)
    gain = torch.rand(3, 1, 1, device="cuda")
    for x in (wide[..., :88].contiguous(), wide[..., 1:88]):
        other = torch.randn(x.shape, device="cuda")
        for size in ((3, 3), (5, 5), (4, 7)):
            column, row = (torch.randn(n, device="cuda", dtype=dtype) for n in size)
            for kernel in (column[:, None] * row, (column, row)):
                for pre in (None, stages.silu() | stages.scale(gain)):
                    options = {"pre": pre, "post": stages.add(other) | stages.snake(gain), "schedule": schedule}
                    compute = functools.partial(sluice.filter2d, x, kernel, **options)
                    launches = linking()["linked_launches"]
                    result = compute()
                    assert linking()["linked_launches"] == launches + 1
                    assert torch.equal(result, interpreted(compute))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_links_transform(schedule: str) -> None:
    base = torch.randn(70_001, device="cuda").bfloat16()
    for x in (base, base[1:], base[:70_000].view(100, 700)[:, 3:], base[:70_000].view(100, 700)[:, ::2]):
        chain = stages.scale(1.5) | stages.add(x) | stages.gelu() | stages.cast(torch.float32)
        launches = linking()["linked_launches"]
        result = sluice.transform(x, chain, schedule=schedule)
        assert linking()["linked_launches"] == launches + 1
        assert torch.equal(result, interpreted(lambda: sluice.transform(x, chain, schedule=schedule)))  # noqa: B023


def test_a_list_of_chains_is_one_launch() -> None:
    for shape, offset in (((200, 300), 0), ((200, 300), 1), ((70_001,), 0)):
        x = torch.randn(60_001 + 20_000, device="cuda").half()[offset:]
        x = x[:60_000].view(shape) if len(shape) == 2 else x[:70_001]
        chains = [
            stages.silu() | stages.add(x),
            stages.gelu() | stages.cast(torch.float32),
            stages.scale(2.0),
            stages.neg(),
        ]
        wanted = interpreted(lambda: [chain(x) for chain in chains])  # noqa: B023
        launches = linking()["linked_launches"]
        results = sluice.transform(x, chains)
        assert linking()["linked_launches"] == launches + 1
        assert all(torch.equal(a, b) for a, b in zip(results, wanted, strict=True))


def test_a_list_of_chains_is_prepared_as_one_kernel() -> None:
    x = torch.randn(50_000, device="cuda")
    chains = [stages.cpp(f"x + {random.random()}"), stages.neg() | stages.tanh()]
    assert sluice.prepare(chains, x) == ""
    before = linking()
    sluice.transform(x, chains)
    assert linking()["compiled"] == before["compiled"]
    assert linking()["linked_launches"] == before["linked_launches"] + 1


def test_new_values_do_not_compile_again() -> None:
    x = torch.randn(30_000, device="cuda")
    (stages.scale(1.25) | stages.add(x, 0.5) | stages.tanh())(x)
    compiled = linking()["compiled"] + linking()["read_from_disk"]
    for n in (1, 17, 30_000):
        y = torch.randn(n, device="cuda")
        (stages.scale(0.1 * n) | stages.add(y, 2.0) | stages.tanh())(y)
    assert linking()["compiled"] + linking()["read_from_disk"] == compiled


def test_threads_that_ask_at_once_compile_once() -> None:
    x = torch.randn(40_000, device="cuda")
    salt = random.random()
    text = f"x * 2 + {salt}"  # new for the process and for the disk
    compiled = linking()["compiled"]
    barrier = threading.Barrier(8)
    results: list[torch.Tensor | Exception] = [RuntimeError("no result")] * 8

    def compute(index: int) -> None:
        barrier.wait()
        try:
            results[index] = stages.cpp(text)(x)
            torch.cuda.synchronize()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=compute, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        assert isinstance(result, torch.Tensor), result
        assert torch.equal(result, results[0])
    assert linking()["compiled"] == compiled + 1


def test_others_run_while_one_compiles() -> None:
    x = torch.randn(40_000, device="cuda")
    ticks, done = 0, threading.Event()

    def compile_one() -> None:
        stages.cpp(f"x * 3 + {random.random()}")(x)
        done.set()

    thread = threading.Thread(target=compile_one)
    thread.start()
    while not done.is_set():
        ticks += 1
        done.wait(0.001)
    thread.join()
    assert ticks > 10  # a compilation takes 0.1 s and holds no lock of Python's


def test_a_capture_takes_what_is_linked_and_interprets_the_rest() -> None:
    x = torch.randn(50_000, device="cuda")
    known = stages.scale(2.0) | stages.sigmoid()
    known(x)
    new = stages.scale(3.0) | stages.neg() | stages.tanh() | stages.neg() | stages.abs()
    for chain, counter in ((known, "linked_launches"), (new, "interpreted_launches")):
        out = torch.empty_like(x)
        graph, count = torch.cuda.CUDAGraph(), linking()[counter]
        with torch.cuda.graph(graph):
            sluice.transform(x, chain, out=out)
        assert linking()[counter] == count + 1
        graph.replay()
        assert torch.equal(out, interpreted(lambda: chain(x)))  # noqa: B023
    stage = stages.cpp(f"x + {random.random()}")
    with pytest.raises(ValueError, match=r"sluice\.prepare"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        stage(x)
    assert sluice.prepare(stage, x) == ""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        stage(x)


def test_small_and_rare_problems_are_interpreted() -> None:
    torch.ops.sluice._set_link_mode("auto")
    x = torch.randn(100, device="cuda")
    chain = stages.scale(2.0) | stages.neg() | stages.tanh() | stages.square() | stages.neg()
    counts = []
    for _ in range(4):
        before = linking()["linked_launches"]
        chain(x)
        counts.append(linking()["linked_launches"] - before)
    assert counts == [0, 0, 1, 1]
    plan = sluice.plan("transform", x, chain)
    assert plan.form == "linked"
    assert "after 2 calls" in plan.form_reason
    other = chain | stages.relu()
    assert sluice.prepare(other, x) == ""
    before = linking()["linked_launches"]
    other(x)
    assert linking()["linked_launches"] == before + 1


def test_prepare_links_without_running() -> None:
    x, w = torch.randn(2, 64, 3000, device="cuda"), torch.randn(64, 4, device="cuda")
    post = stages.cpp(f"x + {random.random()}")
    assert sluice.prepare(post, x, w, op="causal_conv1d", activation="silu") == ""
    compiled = linking()["compiled"]
    sluice.causal_conv1d(x, w, activation="silu", post=post)
    assert linking()["compiled"] == compiled
    assert sluice.prepare(post, x, w[:, None], op="conv1d", padding=3, groups=64, pre=stages.relu()) == ""
    dense = torch.randn(8, 64, 3, device="cuda")
    assert sluice.prepare(post, x, dense, op="conv1d") == ""
    compiled = linking()["compiled"]
    sluice.conv1d(x, w[:, None], padding=3, groups=64, pre=stages.relu(), post=post)
    sluice.conv1d(x, dense, post=post)
    assert linking()["compiled"] == compiled
    assert interpreted(lambda: sluice.prepare(stages.relu(), x)) == "SLUICE_LINK=0 is set"
