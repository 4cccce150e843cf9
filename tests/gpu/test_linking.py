"""Chains linked at run time: the same bits as the interpreter's, one compilation a chain, and a cache that survives."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import torch

import sluice
from common import SCHEDULES, TOLERANCE, assert_close, double_chain, permuted, relative_error
from sluice import reference, stages

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _linked_always(cuda: str) -> Iterator[None]:
    """Every chain is linked at its first call, and a fallback that nobody asked for is an error."""
    if linking()["unavailable"]:
        pytest.fail(f"nothing can be linked here: {linking()['unavailable']}")
    former, failed = torch.ops.sluice._set_link_mode("always"), linking()["failed"]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not be linked.*")
        yield
    torch.ops.sluice._set_link_mode(former)
    assert linking()["failed"] == failed, linking()["last_error"]


def linking() -> dict:
    return sluice.info()["linking"]


def interpreted(compute):
    former = torch.ops.sluice._set_link_mode("never")
    try:
        return compute()
    finally:
        torch.ops.sluice._set_link_mode(former)


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

    def value() -> float | torch.Tensor:
        return tensor() if rng.random() < 0.4 else rng.uniform(0.5, 1.5)

    makers = [
        lambda: stages.scale(value()),
        lambda: stages.shift(value()),
        lambda: stages.add(value(), value()),
        lambda: stages.sub(value(), rng.uniform(-1, 1)),
        lambda: stages.mul(value()),
        lambda: stages.div(value()),
        stages.square,
        lambda: stages.abs() | stages.shift(0.1) | stages.sqrt(),
        lambda: stages.abs() | stages.shift(0.5) | stages.rsqrt(),
        lambda: stages.abs() | stages.shift(0.5) | stages.log(),
        lambda: stages.clamp(-2.0, 2.0) | stages.exp(),
        lambda: stages.clamp(-1.5, value()),
        stages.neg,
        stages.relu,
        lambda: stages.leaky_relu(value()),
        lambda: stages.elu(value()),
        stages.silu,
        stages.gelu,
        lambda: stages.gelu("tanh"),
        stages.sigmoid,
        stages.tanh,
        lambda: stages.softplus(value(), 20.0),
        lambda: stages.snake(value(), value()),
        lambda: stages.cast(rng.choice([torch.float16, torch.bfloat16, torch.float32])),
        lambda: stages.cpp(
            "x / (1 + a * fabs(x)) + b", a=value(), b=value(), reference=lambda x, a, b: x / (1 + a * x.abs()) + b
        ),
    ]
    chain = sluice.Chain()
    for _ in range(rng.randint(1, 16)):
        longer = chain | rng.choice(makers)()
        chain = longer if len(longer) <= 16 else chain
    return chain


def has_cpp(chain: sluice.Chain) -> bool:
    return any(name == "cpp" for name, _ in chain.parts)


@pytest.mark.parametrize("part", range(6))
def test_random_chains(part: int) -> None:
    rng = random.Random(torch.initial_seed() + part)
    torch.cuda.synchronize()
    before, links = torch.cuda.memory_allocated(), linking()["linked_launches"]
    checked = 0
    for _ in range(50):
        dtype = rng.choice([torch.float32, torch.float16, torch.bfloat16, torch.float64])
        shape = rng.choice([(5, 700), (3, 257), (2, 3, 129), (1025,), (64, 65)])
        x = rng.choice([lambda t: t, permuted])(torch.randn(shape, device="cuda")).to(dtype)
        chain = random_chain(rng, x)
        result = chain(x)
        if not has_cpp(chain):
            assert same_bits(result, interpreted(lambda: chain(x))), f"{chain} on {dtype} {shape}"  # noqa: B023
        rounds = any(name == "cast" for name, _ in chain.parts)
        wanted = reference.transform(x.double(), double_chain(chain), dtype=torch.float64)
        exact = reference.transform(x, chain)
        # A chain may amplify roundings, or jump where one changes a sign: its own float32 evaluation says how much.
        allowed = 20 * max(relative_error(exact, wanted), TOLERANCE[result.dtype]) + (0.05 if rounds else 0)
        assert relative_error(result, wanted) <= allowed, f"{chain} on {dtype} {shape}"
        checked += 1
        del x, chain, result, wanted, exact
    torch.cuda.synchronize()
    assert checked == 50
    assert linking()["linked_launches"] >= links + 50
    assert torch.cuda.memory_allocated() == before


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
            other = torch.randn(3, 70, length, device="cuda")
            for pre in (None, stages.silu() | stages.scale(scale)):

                def compute():
                    return sluice.conv1d(
                        x, w, torch.ones_like(w[:, 0, 0]), stride, 2, 1, 70,
                        pre=pre, post=stages.add(other) | stages.snake(scale), schedule=schedule,
                    )  # fmt: skip

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
    assert "third call" in plan.form_reason
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


# --- stages in C++ ------------------------------------------------------------------------------------------------
SOFT = stages.cpp(
    """float y = x * a;
    return y / (1.0f + fabsf(y)) + b;""",
    name="soft", a=0.5, b=torch.tensor([0.25]), reference=lambda x, a, b: x * a / (1 + (x * a).abs()) + b,
)  # fmt: skip


def soft(scale: torch.Tensor) -> sluice.Chain:
    source = SOFT.parts[0][1][0]
    return stages.cpp(source.text, name=source.name, a=0.5, b=scale, reference=source.reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_a_cpp_stage_is_its_reference(dtype: torch.dtype) -> None:
    x, scale = torch.randn(5, 3001, device="cuda").to(dtype), torch.randn(5, 1, device="cuda")
    chain = stages.scale(2.0) | soft(scale) | stages.relu()
    wanted = reference.transform(x.double(), double_chain(chain), dtype=torch.float64)
    # Its float variables round for float64 too.
    assert relative_error(chain(x), wanted) < max(TOLERANCE[dtype], 1e-6)


def test_a_cpp_stage_behind_a_convolution_and_compiled() -> None:
    x, w = torch.randn(2, 8, 600, device="cuda"), torch.randn(8, 1, 5, device="cuda")
    scale = torch.randn(8, 1, device="cuda")
    post = soft(scale)

    def model(x: torch.Tensor) -> torch.Tensor:
        return sluice.conv1d(x, w, padding=2, groups=8, post=post)

    with torch.no_grad():
        wanted = reference.conv1d(x.double(), w.double(), padding=2, groups=8, post=double_chain(post))
        assert_close(model(x), wanted)
        assert_close(torch.compile(model, fullgraph=True)(x), wanted)


def test_cpp_parameters_beyond_three() -> None:
    x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
    chain = stages.cpp("a + b * x + c * x * x + d * e", a=1.0, b=y, c=0.5, d=y, e=2.0)
    assert_close((chain | stages.scale(2.0))(x), 2 * (1 + y.double() * x + 0.5 * x.double() ** 2 + y.double() * 2))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("x * undefined_name", "undefined_name"), ("x *", "expected an expression"), ("float y = x;\nreturn z;", r"bad\(2\)")],
)
def test_a_cpp_stage_that_does_not_compile(text: str, complaint: str) -> None:
    x = torch.randn(100, device="cuda")
    with pytest.raises(ValueError, match=complaint) as caught:
        stages.cpp(text, name="bad")(x)
    assert text in str(caught.value)
    assert "transform: a cpp stage must compile" in str(caught.value)
    with pytest.raises(ValueError, match=complaint):  # and again, without a new compilation
        stages.cpp(text, name="bad")(x)


def test_without_linking_a_cpp_stage_says_so() -> None:
    x = torch.randn(100, device="cuda")
    with pytest.raises(ValueError, match="must be linked.*SLUICE_LINK=0"):
        interpreted(lambda: stages.cpp("x + 1")(x))


# --- processes and the disk ---------------------------------------------------------------------------------------
PROGRAM = """
import json, sys, time, torch, sluice
from sluice import stages
x = torch.arange(40_000, device="cuda", dtype=torch.float32) / 1e4
torch.cuda.synchronize()
start = time.perf_counter()
y = (stages.scale(1.5) | stages.tanh() | stages.cpp("x * x + %s"))(x)
torch.cuda.synchronize()
seconds = time.perf_counter() - start
print(json.dumps({**sluice.info()["linking"], "sum": y.double().sum().item(), "seconds": seconds}))
"""


def start_process(directory: pathlib.Path, salt: float = 0.5, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM % salt], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLUICE_CACHE_DIR": str(directory), **environment},
    )  # fmt: skip


def result_of(process: subprocess.Popen[str]) -> dict:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    return json.loads(out.splitlines()[-1])


def test_a_second_process_reads_what_the_first_compiled(tmp_path: pathlib.Path) -> None:
    first, second = result_of(start_process(tmp_path)), result_of(start_process(tmp_path))
    assert (first["compiled"], first["read_from_disk"]) == (1, 0)
    assert (second["compiled"], second["read_from_disk"]) == (0, 1)
    assert first["sum"] == second["sum"]
    for damage in (lambda data: data[: len(data) // 2], lambda data: data[:-100] + b"x" * 100, lambda _: b""):
        for entry in tmp_path.iterdir():
            entry.write_bytes(damage(entry.read_bytes()))
        third = result_of(start_process(tmp_path))
        assert (third["compiled"], third["read_from_disk"], third["sum"]) == (1, 0, first["sum"])


def test_processes_share_a_cache(tmp_path: pathlib.Path) -> None:
    results = [result_of(p) for p in [start_process(tmp_path) for _ in range(4)]]
    assert len({r["sum"] for r in results}) == 1
    assert result_of(start_process(tmp_path))["read_from_disk"] == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]  # no file that was being written is left


def test_a_cache_that_cannot_be_used_costs_nothing_else(tmp_path: pathlib.Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    assert result_of(start_process(blocked))["compiled"] == 1
    assert result_of(start_process(pathlib.Path("/proc/nowhere")))["compiled"] == 1
    assert result_of(start_process(pathlib.Path("")))["compiled"] == 1
    full = pathlib.Path("/dev/full")
    assert result_of(start_process(full))["compiled"] == 1
    wanted = result_of(start_process(tmp_path / "new"))["sum"]
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    assert result_of(start_process(locked))["sum"] == wanted
