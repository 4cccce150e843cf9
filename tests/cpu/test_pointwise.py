"""transform on the CPU under each instruction set that there is: walks, panels, conversions, specials, threads."""

from __future__ import annotations

import random

import pytest
import torch

import sluice
from common import DTYPES, HALF_TYPES, assert_close, poisoned_like
from every_stage import SAMPLES
from function_errors import FUNCTIONS, check_every_half
from rows import naming
from sluice import stages

pytestmark = pytest.mark.usefixtures("instruction_set")


def test_the_setter_takes_what_there_is(instruction_set: str) -> None:
    assert sluice.info()["cpu"]["instruction_set"] == instruction_set
    with pytest.raises(RuntimeError, match=r"must be one of this machine's \(.*baseline\), got sse9"):
        torch.ops.sluice._set_instruction_set("sse9")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_stage(dtype: torch.dtype) -> None:
    for name in SAMPLES:
        with naming(name):
            x = torch.randn(1003, dtype=dtype)
            chain = SAMPLES[name](lambda value: value)
            result = sluice.transform(x, chain, out=poisoned_like(x))
            assert_close(result, sluice.reference.transform(x.double(), chain))


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_every_half(dtype: torch.dtype) -> None:
    for name in FUNCTIONS:
        with naming(name):
            check_every_half(FUNCTIONS[name], dtype, "cpu")


def any_layout(choose: random.Random, shape: list[int]) -> torch.Tensor:
    """Random values: contiguous, with steps, permuted, expanded, or inside of a larger tensor."""
    kind = choose.randrange(5)
    if kind == 0:
        return torch.randn(shape)
    if kind == 1:
        steps = [choose.choice([1, 1, 2, 3]) for _ in shape]
        wide = torch.randn([size * step for size, step in zip(shape, steps, strict=True)])
        return wide[tuple(slice(None, None, step) for step in steps)]
    if kind == 2:
        order = choose.sample(range(len(shape)), len(shape))
        return torch.randn([shape[d] for d in order]).permute([order.index(d) for d in range(len(shape))])
    if kind == 3:
        return torch.randn([size if choose.random() < 0.5 else 1 for size in shape]).expand(shape)
    return torch.randn([size + 3 for size in shape])[tuple(slice(2, 2 + size) for size in shape)]


def random_shape(choose: random.Random, most: int) -> list[int]:
    shape = [choose.choice([1, 2, 3, 5, 8, 16, 33, 64, 100, 129, 300]) for _ in range(choose.randrange(1, 5))]
    while torch.Size(shape).numel() > most:
        shape[choose.randrange(len(shape))] = 2
    return shape


def test_any_walk() -> None:
    for seed in range(150):
        torch.manual_seed(seed)
        check_any_walk(random.Random(seed))


def check_any_walk(choose: random.Random) -> None:
    shape = random_shape(choose, 20_000)
    x = any_layout(choose, shape).to(choose.choice(DTYPES))
    # Few stages, in which a value that went to another place shows; with broadcast operands of any dtype.
    first, second = (
        any_layout(choose, [size if choose.random() < 0.6 else 1 for size in shape][choose.randrange(len(shape)) :])
        for _ in range(2)
    )
    first, second = first.to(choose.choice(DTYPES)), second.to(choose.choice(DTYPES))
    chain = stages.add(first) | stages.scale(1.5) | stages.mul(second) | stages.clamp(-0.5, first)
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    value = (x.to(wide) + first.to(wide)) * 1.5 * second.to(wide)
    value = torch.minimum(value.clamp_min(-0.5), first.to(wide)).to(x.dtype)
    around = torch.full([size + 2 for size in shape], float("nan"), dtype=x.dtype)
    inside = around[tuple(slice(1, 1 + size) for size in shape)]
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        with naming(x.shape, x.stride(), x.dtype, first.shape, first.stride(), second.shape, second.stride(), count):
            assert torch.equal(sluice.transform(x, chain), value)
            sluice.transform(x, chain, out=inside)
            assert torch.equal(inside, value)
            inside.fill_(float("nan"))
            assert around.isnan().all()


@pytest.mark.parametrize("shape", [(5000, 33), (64, 7, 100), (1000, 129), (3, 20001)], ids=str)
@pytest.mark.parametrize("broadcast", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rows_that_come_again(shape: tuple[int, ...], broadcast: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype)
    other = torch.randn([1 if d in broadcast else size for d, size in enumerate(shape)], dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    expected = (x.to(wide) * other.to(wide)).to(dtype)
    assert torch.equal(sluice.transform(x, stages.mul(other)), expected)
    assert torch.equal(
        sluice.transform(x.t() if x.dim() == 2 else x, stages.abs()), (x.t() if x.dim() == 2 else x).abs()
    )


@pytest.mark.parametrize("offset", [0, 1, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_result_past_the_caches(offset: int, dtype: torch.dtype) -> None:
    count = (16 << 20) // dtype.itemsize + 1001
    x = torch.randn(count).to(dtype)
    around = torch.full((count + offset + 64,), float("nan"), dtype=dtype)
    out = around[offset : offset + count]
    for threads_count in (1, 2):
        torch.set_num_threads(threads_count)
        sluice.transform(x, stages.neg(), out=out)
        assert torch.equal(out, -x)
        assert around[:offset].isnan().all()
        assert around[offset + count :].isnan().all()


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.dtype.itemsize])


@pytest.mark.parametrize("dtype", HALF_TYPES, ids=str)
def test_half_types_are_read_and_rounded_as_by_torch(dtype: torch.dtype) -> None:
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    numbers = ~every.isnan()
    wide = sluice.transform(every, "", dtype=torch.float32)
    assert torch.equal(bits(wide)[numbers], bits(every.float())[numbers])
    assert wide[~numbers].isnan().all()
    # All numbers and what is between them: ties, to either side, and half of their exponents' range beyond.
    ties = (wide[numbers].double() + torch.nextafter(every[numbers].double(), torch.tensor(torch.inf))) / 2
    random_bits = torch.randint(-(2**31), 2**31, (300_001,)).to(torch.int32).view(torch.float32)
    for values in (ties.float(), wide, random_bits, wide * 1.00390625, wide + 2**-25):
        narrow, expected = sluice.transform(values, "", dtype=dtype), values.to(dtype)
        assert torch.equal(bits(narrow)[~values.isnan()], bits(expected)[~values.isnan()])
        assert narrow[values.isnan()].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_specials_are_torchs(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    values = [
        0.0,
        -0.0,
        torch.inf,
        -torch.inf,
        torch.nan,
        info.tiny,
        -info.tiny,
        info.smallest_normal / 4,
        info.max,
        1.0,
    ]
    x = torch.tensor(values * 41, dtype=torch.float64).to(dtype)
    for chain, torchs in (
        (stages.neg(), torch.neg),
        (stages.abs(), torch.abs),
        (stages.relu(), lambda x: torch.relu(x) + 0.0),  # torch's own keeps -0, on the CPU
        (stages.square(), torch.square),
        (stages.sqrt(), torch.sqrt),
        (stages.scale(0.5), lambda x: 0.5 * x),
        (stages.clamp(-1.0, 1.0), lambda x: x.clamp(-1.0, 1.0)),
        (stages.leaky_relu(0.25), lambda x: torch.nn.functional.leaky_relu(x, 0.25)),
    ):
        result, expected = sluice.transform(x, chain), torchs(x)
        assert torch.equal(result.isnan(), expected.isnan())
        assert torch.equal(bits(result)[~expected.isnan()], bits(expected)[~expected.isnan()]), chain
